// runnel-central: the node that holds the data, plans, feeds and watches the training.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/cli/subcommand.h"
#include "central/cli/subcommand_help.h"
#include "central/display/admin_server.h"
#include "central/display/metrics_registry.h"
#include "central/run/commands.h"
#include "proto/process/signal_watch.h"
#include "proto/process/spdlog_logger.h"
#include "proto/transport/grpc/grpc_control.h"
#include "proto/transport/grpc/grpc_transport.h"
#include "proto/transport/grpc/insecure_network.h"

namespace runnel {
namespace {

constexpr int kExitInterrupted = 130;

// What the user got wrong exits with 2, what went wrong by itself with 1.
int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented:
      return 2;
    default:
      return 1;
  }
}

// Turns Ctrl-C into a stop at the next barrier, and a second one into an immediate end.
class StopSwitch {
 public:
  void SetTrainer(Trainer* trainer) {
    std::lock_guard<std::mutex> lock(mutex_);
    trainer_ = trainer;
  }

  void OnSignal(int caught) {
    std::lock_guard<std::mutex> lock(mutex_);
    // Nothing to bring to a barrier, or asked twice. Local workers die with us
    // (PR_SET_PDEATHSIG).
    if (trainer_ == nullptr || caught > 1) _exit(kExitInterrupted);
    static constexpr char kText[] = "\nstopping at the next barrier; once more ends at once\n";
    if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) return;
    trainer_->StopAtBarrier();
  }

 private:
  std::mutex mutex_;
  Trainer* trainer_ = nullptr;  // guarded by mutex_
};

// The display of one run and, if asked for, its HTTP side.
class DisplayMaker {
 public:
  explicit DisplayMaker(const Clock* clock) : clock_(clock) {}
  ~DisplayMaker() { admin_.reset(); }

  absl::StatusOr<RunDisplay*> Make(int64_t metrics_port) {
    admin_.reset();
    ProgressOptions options;
    options.terminal = isatty(STDOUT_FILENO) == 1;
    winsize size;
    if (options.terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
      options.width = size.ws_col;
    display_ = std::make_unique<RunDisplay>(options, STDOUT_FILENO, &metrics_, clock_);
    if (metrics_port < 0) return display_.get();
    AdminCallbacks callbacks;
    callbacks.metrics_text = [this] { return metrics_.Text(); };
    callbacks.state_json = [this] { return display_->StateJson(); };
    callbacks.ready = [this] { return display_->ready(); };
    absl::StatusOr<std::unique_ptr<AdminServer>> admin =
        AdminServer::Start(static_cast<int>(metrics_port), std::move(callbacks));
    if (!admin.ok()) return admin.status();
    admin_ = *std::move(admin);
    display_->Line(
        absl::StrCat("page, /metrics and /healthz at http://127.0.0.1:", admin_->port(), "/"));
    return display_.get();
  }

 private:
  const Clock* clock_;
  MetricsRegistry metrics_;
  std::unique_ptr<RunDisplay> display_;
  std::unique_ptr<AdminServer> admin_;
};

// Every command; the order is that of --help.
constexpr AddSubcommandFn kSubcommands[] = {AddTrain, AddPlan,     AddResume,  AddReplay,
                                            AddEval,  AddSimulate, AddProfile, AddPredictorReport,
                                            AddCodecs};

// Everything that can stand on the command line.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.formatter(MakeHelpFormatter());
    // Also behind the command's name.
    app_.fallthrough();
    app_.add_flag("--insecure-network", insecure_network_, kInsecureNetworkHelp);
    for (AddSubcommandFn add : kSubcommands) commands_.push_back(add(app_));
  }

  CLI::App& app() { return app_; }
  bool insecure_network() const { return insecure_network_; }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Subcommand& command : commands_) names.push_back(command.app->get_name());
    return names;
  }

  bool Knows(const std::string& name) const {
    const std::vector<std::string> names = Names();
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  absl::Status Run(const CommandContext& context) const {
    for (const Subcommand& command : commands_) {
      if (command.app->parsed()) return command.run(context);
    }
    return absl::InternalError("no command was given");
  }

 private:
  CLI::App app_{"Runnel trains one deep network across the devices that you own."};
  bool insecure_network_ = false;
  std::vector<Subcommand> commands_;
};

int Main(int argc, char** argv) {
  CommandLine command_line;
  // CLI11 would only say that a command is missing.
  if (argc > 1 && argv[1][0] != '-' && !command_line.Knows(argv[1])) {
    std::fprintf(stderr, "runnel-central: command '%s' is not known; there are %s%s\n", argv[1],
                 absl::StrJoin(command_line.Names(), ", ").c_str(),
                 DidYouMean(argv[1], command_line.Names()).c_str());
    return 2;
  }
  try {
    command_line.app().parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return command_line.app().exit(error);  // help
    std::fprintf(stderr, "runnel-central: %s\n",
                 CommandLineError(command_line.app(), error).c_str());
    return 2;
  }
  // A file that cannot grow and a reader that is gone are errors of a write, not ends of the
  // process.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  StopSwitch stop;
  SignalWatch signals;
  signals.Begin([&stop](int caught) { stop.OnSignal(caught); });
  const std::unique_ptr<Logger> logger = MakeSpdlogLogger("central");
  MonotonicClock clock;
  DisplayMaker displays(&clock);
  const bool insecure = command_line.insecure_network();
  if (insecure) logger->Log(Severity::kWarning, kInsecureNetworkWarning);
  const std::unique_ptr<Transport> transport = MakeGrpcTransport({.allow_non_loopback = insecure});
  const std::unique_ptr<ControlTransport> control =
      MakeGrpcControl({.allow_non_loopback = insecure});
  CommandContext context;
  context.transport = transport.get();
  context.control = control.get();
  context.clock = &clock;
  context.logger = logger.get();
  context.make_display = [&displays](int64_t port) { return displays.Make(port); };
  context.on_trainer = [&stop](Trainer* trainer) { stop.SetTrainer(trainer); };
  context.print = [](const std::string& text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  };
  const absl::Status status = command_line.Run(context);
  if (!status.ok())
    std::fprintf(stderr, "runnel-central: %s\n", std::string(status.message()).c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::Main(argc, argv); }
