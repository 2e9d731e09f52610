// runnel-central: the node that holds the data, plans, feeds and watches the training.

#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/admin_server.h"
#include "central/commands.h"
#include "central/metrics_registry.h"
#include "compress/codec.h"
#include "partition/policy.h"
#include "partition/schedule.h"
#include "partition/zoo/zoo.h"
#include "proto/transport/grpc_control.h"
#include "proto/transport/grpc_transport.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace runnel {
namespace {

constexpr int kExitInterrupted = 130;

class SpdlogLogger final : public Logger {
 public:
  SpdlogLogger() : logger_(spdlog::stderr_color_mt("central")) {
    const char* level = std::getenv("RUNNEL_LOG_LEVEL");
    logger_->set_level(level == nullptr ? spdlog::level::info : spdlog::level::from_str(level));
  }
  void Log(Severity severity, absl::string_view line) override {
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    logger_->log(kLevels[static_cast<int>(severity)],
                 spdlog::string_view_t(line.data(), line.size()));
  }

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

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

// Turns Ctrl-C into a stop at the next barrier, and a second one into an immediate end. A thread
// waits for the signals, so that no handler runs our code.
class SignalWatch {
 public:
  // Before any other thread is made: they must inherit the blocked signals.
  SignalWatch() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    // A file that cannot grow and a reader that is gone are errors of a write, not ends of the
    // process.
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { Watch(); });
  }
  ~SignalWatch() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

  void SetTrainer(Trainer* trainer) {
    std::lock_guard<std::mutex> lock(mutex_);
    trainer_ = trainer;
  }

 private:
  void Watch() {
    int caught = 0;
    for (int signal = 0; sigwait(&signals_, &signal) == 0;) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (done_) return;
      // Nothing to bring to a barrier, or asked twice. Local workers die with us
      // (PR_SET_PDEATHSIG).
      if (trainer_ == nullptr || ++caught > 1) _exit(kExitInterrupted);
      static constexpr char kText[] = "\nstopping at the next barrier; once more ends at once\n";
      if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) continue;
      trainer_->StopAtBarrier();
    }
  }

  sigset_t signals_;
  std::mutex mutex_;
  bool done_ = false;           // guarded by mutex_
  Trainer* trainer_ = nullptr;  // guarded by mutex_
  std::thread thread_;
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

const CLI::Range kCount(int64_t{1}, int64_t{1'000'000'000});

// What is trained on what.
void AddDataFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--model", s.model, absl::StrCat("one of ", absl::StrJoin(ModelNames(), ", ")))
      ->capture_default_str();
  app.add_option(
      "--dataset", s.dataset,
      absl::StrCat("one of ", absl::StrJoin(DatasetNames(), ", "), " (default: the model's)"));
  app.add_option("--data-dir", s.data_dir, "folder with the data set's original files");
  app.add_option("--recipe", s.recipe,
                 "training arithmetic: fp32, or the integers of niti, niti:niti2020, niti:niti2021")
      ->capture_default_str();
  app.add_option("--backend", s.backend, "what computes: auto, or a worker's backend by name")
      ->capture_default_str();
}

// Who takes part and how the model is cut.
void AddPipelineFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--local-workers", s.local_workers,
                 "stages on this host; 0: plain loop, no pipeline")
      ->capture_default_str();
  app.add_option("--workers", s.workers, "workers that dial in, besides the local ones")
      ->capture_default_str();
  app.add_option("--listen", s.listen, "address for dialling workers")->capture_default_str();
  app.add_option("--worker-timeout-s", s.worker_timeout_s, "how long to wait for workers to join")
      ->capture_default_str();
  app.add_option("--worker-threads", s.worker_threads, "compute threads of a local worker")
      ->capture_default_str();
  app.add_option("--schedule", s.schedule,
                 absl::StrCat("one of ", absl::StrJoin(ScheduleNames(), ", ")))
      ->capture_default_str();
  app.add_option("--policy", s.policy,
                 absl::StrCat("who cuts the model: ", absl::StrJoin(PolicyNames(), ", ")))
      ->capture_default_str();
  app.add_option("--caps", s.caps,
                 "in-flight micro-batches by stage, e.g. 5,3,1 (default: the schedule's)")
      ->delimiter(',');
  app.add_option("--codec-forward", s.codec_forward,
                 absl::StrCat("activations: ", absl::StrJoin(CodecNames(), ", ")))
      ->capture_default_str();
  app.add_option("--codec-backward", s.codec_backward,
                 "gradients: the same list, e.g. stochastic:8")
      ->capture_default_str();
  app.add_option("--link-mbps", s.link_mbps, "limit of each link, each way; 0: none")
      ->capture_default_str();
  app.add_option("--link-delay-ms", s.link_delay_ms, "added to each link, each way")
      ->capture_default_str();
}

// How it is trained. A value given by hand must be good as it is: -1 stands for "the model's
// default" only inside.
void AddTrainingFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--epochs", s.epochs, "passes over the training set (default: the model's)")
      ->check(kCount);
  app.add_option("--max-batches", s.max_batches,
                 "stop after this many optimizer steps from the run's start")
      ->check(kCount);
  app.add_option("--batch-size", s.batch_size,
                 "samples of one optimizer step (default: the model's)")
      ->check(kCount);
  app.add_option("--micro-batches", s.micro_batches,
                 "micro-batches of one step (default: async 1, sync 4)")
      ->check(kCount);
  app.add_option("--lr", s.lr, "learning rate (default: the model's)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--momentum", s.momentum, "of SGD (default: the model's)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--weight-decay", s.weight_decay, "of SGD (default: the model's)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--milestones", s.milestones,
                 "epochs at which the rate drops, e.g. 60,120 (default: the model's)")
      ->delimiter(',')
      ->check(kCount);
  app.add_option("--milestone-factor", s.milestone_factor, "what the rate is multiplied by there")
      ->check(CLI::NonNegativeNumber);
  // Steps are separated by commas, on which a configuration file cuts a value.
  app.add_option_function<std::vector<std::string>>(
         "--gradient-bits",
         [&s](const std::vector<std::string>& steps) {
           s.gradient_bits = absl::StrJoin(steps, ",");
         },
         "integer recipes: bits that a step keeps, BITS or CONV/LINEAR, or by epoch, e.g. "
         "0:3/3,10:2/2 (default: 2, later 1, at last 0)")
      ->delimiter(',');
  app.add_option("--seed", s.seed, "of everything random")->capture_default_str();
  app.add_option("--barrier-every", s.barrier_every, "optimizer steps between barriers")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("--eval-every", s.eval_every, "epochs between evaluations; 0: only at the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--eval-batch-size", s.eval_batch_size,
                 "samples at once in evaluation (default: the batch size)")
      ->check(kCount);
}

// What is written and shown.
void AddOutputFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--checkpoint-dir", s.checkpoint_dir,
                 "folder for check-points, one at each barrier");
  app.add_option("--journal", s.journal, "file for the record of all decisions (see replay)");
  app.add_option("--summary", s.summary, "JSON file with the result; -: standard output");
  app.add_option("--metrics-port", s.metrics_port,
                 "port for the page, /metrics and /healthz; 0: any free one")
      ->check(CLI::Range(0, 65535));
  app.add_option("--config", "file with flags, one 'name=value' a line; the command line wins");
}

void AddRunFlags(CLI::App& app, RunSettings& s) {
  AddDataFlags(app, s);
  AddPipelineFlags(app, s);
  AddTrainingFlags(app, s);
  AddOutputFlags(app, s);
}

// Takes from the file of --config what the command line does not say. CLI11 would read a file for
// the program itself only, not for one of its commands.
absl::Status TakeConfig(CLI::App& command) {
  const CLI::Option& config = *command.get_option("--config");
  if (config.count() == 0) return absl::OkStatus();
  const auto path = config.as<std::string>();
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("--config ", path, ": cannot be read"));
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigBase().from_config(file)) {
      CLI::Option* option = command.get_option_no_throw(absl::StrCat("--", item.name));
      if (option == nullptr || !item.parents.empty() || option == &config) {
        return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": '", item.fullname(),
                                                       "' is no flag of ", command.get_name()));
      }
      if (option->count() > 0) continue;
      option->add_result(item.inputs);
      option->run_callback();
    }
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": ", error.what()));
  }
  return absl::OkStatus();
}

// Everything that can stand on the command line.
struct CommandLine {
  CLI::App app{"Runnel trains one deep network across the devices that you own."};
  RunSettings train_settings;
  RunSettings plan_settings;
  ResumeArguments resume;
  EvalArguments eval;
  std::string journal;
  std::string replay_summary;
  CLI::App* train_app = nullptr;
  CLI::App* plan_app = nullptr;
  CLI::App* resume_app = nullptr;
  CLI::App* replay_app = nullptr;
  CLI::App* eval_app = nullptr;

  CommandLine() {
    const char* const summary_help = "JSON file with the result; -: standard output";
    app.require_subcommand(1);
    train_app = app.add_subcommand("train", "Train a model");
    AddRunFlags(*train_app, train_settings);
    plan_app = app.add_subcommand("plan", "Show how a run would cut the model, without training");
    AddRunFlags(*plan_app, plan_settings);
    resume_app = app.add_subcommand("resume", "Go on from the last check-point of a folder");
    resume_app->add_option("--checkpoint-dir", resume.checkpoint_dir, "folder with check-points")
        ->required();
    resume_app->add_option("--local-workers", resume.local_workers,
                           "stages on this host (default: as before)");
    resume_app->add_option("--workers", resume.workers,
                           "workers that dial in (default: as before)");
    resume_app
        ->add_option("--max-batches", resume.max_batches,
                     "stop after this many steps from the run's start")
        ->check(kCount);
    resume_app->add_option("--summary", resume.summary, summary_help);
    replay_app =
        app.add_subcommand("replay", "Train again what a journal tells of and compare the weights");
    replay_app->add_option("--journal", journal, "journal of a finished run")->required();
    replay_app->add_option("--summary", replay_summary, summary_help);
    eval_app = app.add_subcommand("eval", "Evaluate the newest weights of a check-point folder");
    eval_app->add_option("--checkpoint-dir", eval.checkpoint_dir, "folder with check-points")
        ->required();
    eval_app->add_option("--data-dir", eval.data_dir,
                         "folder with the data set (default: as in training)");
    eval_app->add_option("--summary", eval.summary, summary_help);
  }

  bool Knows(const std::string& command) const {
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
      if (known->get_name() == command) return true;
    }
    return false;
  }

  absl::Status Run(const CommandContext& context) {
    for (CLI::App* command : {train_app, plan_app}) {
      if (!command->parsed()) continue;
      if (absl::Status status = TakeConfig(*command); !status.ok()) return status;
    }
    train_settings.has_milestones = train_app->count("--milestones") > 0;
    plan_settings.has_milestones = plan_app->count("--milestones") > 0;
    if (train_app->parsed()) return TrainCommand(train_settings, context);
    if (plan_app->parsed()) return PlanCommand(plan_settings, context);
    if (resume_app->parsed()) return ResumeCommand(resume, context);
    if (replay_app->parsed()) return ReplayCommand(journal, replay_summary, context);
    return EvalCommand(eval, context);
  }
};

int Main(int argc, char** argv) {
  CommandLine command_line;
  // CLI11 would only say that a command is missing.
  if (argc > 1 && argv[1][0] != '-' && !command_line.Knows(argv[1])) {
    std::fprintf(
        stderr,
        "runnel-central: command '%s' is not known; there are train, resume, replay, plan, eval\n",
        argv[1]);
    return 2;
  }
  try {
    command_line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return command_line.app.exit(error) == 0 ? 0 : 2;
  }
  SignalWatch signals;
  SpdlogLogger logger;
  MonotonicClock clock;
  DisplayMaker displays(&clock);
  const std::unique_ptr<Transport> transport = MakeGrpcTransport(GrpcTransportOptions{});
  const std::unique_ptr<ControlTransport> control = MakeGrpcControl(GrpcControlOptions{});
  CommandContext context;
  context.transport = transport.get();
  context.control = control.get();
  context.clock = &clock;
  context.logger = &logger;
  context.make_display = [&displays](int64_t port) { return displays.Make(port); };
  context.on_trainer = [&signals](Trainer* trainer) { signals.SetTrainer(trainer); };
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
