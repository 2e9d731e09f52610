// runnel-worker: the daemon of a device.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/host/host_processors.h"
#include "proto/base/refusal_log.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/int8_inference.h"
#include "proto/crypto/identity.h"
#include "proto/process/command_line_error.h"
#include "proto/process/file_limit.h"
#include "proto/process/help_formatter.h"
#include "proto/process/signal_watch.h"
#include "proto/process/spdlog_logger.h"
#include "proto/process/standard_streams.h"
#include "proto/process/version.h"
#include "proto/transport/control/control.h"
#include "proto/transport/control/wire_check.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/grpc/grpc_process.h"
#include "proto/transport/grpc/insecure_network.h"
#include "proto/transport/grpc/security/grpc_renew.h"
#include "proto/transport/grpc/security/join_secret.h"
#include "worker/check/check_report.h"
#include "worker/heap_limits.h"
#include "worker/infer_main.h"
#include "worker/limits_main.h"
#include "worker/measure/device_description.h"
#include "worker/membership/certificate_keeper.h"
#include "worker/membership/device_identity.h"
#include "worker/membership/membership.h"
#include "worker/numbers_main.h"
#include "worker/program_main.h"
#include "worker/service.h"
#include "worker/tune_main.h"

namespace runnel {
namespace {

constexpr int64_t kRenewTimeoutMs = 30'000;
constexpr char kExamples[] = R"(
Examples:
  join a cluster once, by a token of `runnel-central token`; later starts need no flag
    runnel-worker --join TOKEN@192.168.1.10:7001
    runnel-worker
  only at night, on mains power, with what this device can compute on
    runnel-worker --check
    runnel-worker --hours 22-7 --battery-floor 100
Exit codes: 0 done, or ended by a signal, 1 no central or a failed run, 2 wrong input)";

constexpr char kAbout[] =
    "Runnel's worker: dials a central node, offers this device, and trains the stage that central\n"
    "gives it. It dials again, for ever, when the run is over or central is gone. SIGTERM or "
    "Ctrl-C:\n"
    "its stage moves to other devices at the next barrier, then the worker ends; a second signal\n"
    "ends it at once.";

// The host's name; characters that a worker's name may not have become '-'.
std::string HostName() {
  constexpr size_t kMaxHostBytes = 48;
  char host[256] = "worker";
  gethostname(host, sizeof(host) - 1);
  std::string name = absl::StrCat("w", host);
  if (absl::ascii_isalnum(host[0])) name = host;
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_') c = '-';
  }
  return name.substr(0, kMaxHostBytes);
}

// Later ones are higher.
int64_t Incarnation() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "runnel-worker: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return 2;
    default:
      return 1;
  }
}

// Help, or one line on words that cannot be read.
int Answer(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::fprintf(stderr, "runnel-worker: %s\n", CommandLineError(app, error).c_str());
  return 2;
}

BackendSettings SettingsOf(const WorkerOptions& options) {
  return {options.threads, options.device_memory_bytes, options.backend_options};
}

int Run(ServiceOptions options, const std::shared_ptr<IdentityHolder>& identity,
        bool insecure_network) {
  SignalWatch signals;
  const std::unique_ptr<Logger> logger = MakeSpdlogLogger("worker");
  options.daemon.backends = OfferedBackends(SettingsOf(options.daemon),
                                            BackendVerdicts(options.daemon.state_folder), *logger);
  MonotonicClock clock;
  if (insecure_network) logger->Log(Severity::kWarning, kInsecureNetworkWarning);
  RefusalLog refusals(logger.get(), &clock);
  LogGrpcTo(&refusals);
  GrpcSecurity security;
  security.identity = identity;
  security.secrets_folder = DefaultSecretsFolder();
  security.refusals = &refusals;
  const std::unique_ptr<Transport> transport =
      MakeGrpcTransport({.allow_non_loopback = insecure_network, .security = security});
  const std::unique_ptr<ControlTransport> control = MakeGrpcControl(
      {.allow_non_loopback = insecure_network, .security = security, .logger = logger.get()});
  std::optional<CertificateKeeper> keeper;
  if (identity != nullptr && !identity->folder().empty()) {
    keeper.emplace(identity.get(), SystemWallClock(), logger.get(),
                   [&](const std::string& request) {
                     return RenewCertificate(options.daemon.central_address, security, request,
                                             kRenewTimeoutMs);
                   });
  }
  WorkerService service(options, {transport.get(), control.get(), &clock, logger.get(), nullptr,
                                  DeviceFiller(identity)});
  signals.Begin([&service](int, int) { service.Stop(); });
  const absl::Status status = service.Run();
  signals.End();
  return ExitCode(status);
}

// Identity and membership flags.
struct MembershipFlags {
  std::string join;  // TOKEN@HOST:PORT
  bool insecure_network = false;
};

// Whoever lists the processes of a host sees their flags: "-" is a line of standard input.
absl::StatusOr<std::string> JoinOrderOf(const std::string& flag) {
  if (flag != "-") return flag;
  std::string line;
  if (!std::getline(std::cin, line) || line.empty())
    return absl::InvalidArgumentError("--join -: standard input has no line TOKEN@HOST:PORT");
  return line;
}

// Joins if asked to, else finds what an earlier join or central left. Sets name and central in
// `options` where they follow from that. Null: nothing is encrypted.
absl::StatusOr<std::shared_ptr<IdentityHolder>> FindIdentity(const MembershipFlags& flags,
                                                             WorkerOptions& options) {
  if (const char* given = std::getenv(kWorkerIdentityVariable)) {
    RUNNEL_ASSIGN_OR_RETURN(Identity identity, ParseIdentity(given));
    return std::make_shared<IdentityHolder>(std::move(identity), "");
  }
  // Central has started it and gave it none.
  if (std::getenv(kWorkerSecretVariable) != nullptr) return nullptr;
  Membership membership;
  if (!flags.join.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string order, JoinOrderOf(flags.join));
    RUNNEL_ASSIGN_OR_RETURN(membership,
                            Join(order, options.name, HostName(), options.state_folder,
                                 options.connect_timeout_ms, [](const std::string& line) {
                                   std::fprintf(stderr, "runnel-worker: %s\n", line.c_str());
                                 }));
  } else if (flags.insecure_network || options.state_folder.empty()) {
    return nullptr;
  } else {
    absl::StatusOr<Membership> kept = ReadMembership(options.state_folder);
    if (absl::IsNotFound(kept.status())) return nullptr;
    RUNNEL_RETURN_IF_ERROR(kept.status());
    membership = *std::move(kept);
  }
  auto holder = std::make_shared<IdentityHolder>(std::move(membership.identity),
                                                 MembershipFolder(options.state_folder));
  const std::string name = holder->info().subject.name;
  if (!options.name.empty() && options.name != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name ", options.name, ": this device joined as ", name,
                     "; leave the flag out, or --join again with another token"));
  }
  options.name = name;
  if (options.central_address.empty()) options.central_address = membership.central;
  return holder;
}

// Makes this worker's identity and offer. The result is held while it lives.
absl::StatusOr<DeviceIdentity> Describe(int64_t memory_mb, ServiceOptions& service) {
  WorkerOptions& options = service.daemon;
  if (!options.name.empty()) RUNNEL_RETURN_IF_ERROR(CheckWorkerName("--name", options.name));
  if (!options.site.empty()) RUNNEL_RETURN_IF_ERROR(CheckWorkerName("--site", options.site));
  const char* secret = std::getenv(kWorkerSecretVariable);
  if (secret != nullptr) {
    // Central started it, for this run.
    options.secret = secret;
    service.once = true;
  }
  DeviceIdentity self =
      FindDeviceIdentity(secret == nullptr ? options.state_folder : "", options.name, HostName());
  options.name = self.name;
  options.device_id = self.id;
  options.incarnation = Incarnation();
  std::string device = absl::StrCat("worker ", options.name, "\nthreads ", options.threads);
  if (options.backend != "auto") absl::StrAppend(&device, "\nbackend ", options.backend);
  absl::StrAppend(&device, "\n", DriverStamps());
  if (options.device_memory_bytes > 0)
    absl::StrAppend(&device, "\ndevice memory ", options.device_memory_bytes);
  const std::string backend_options = options.backend_options.text();
  if (!backend_options.empty()) absl::StrAppend(&device, "\nbackend options ", backend_options);
  options.device = DescribeDevice(device);
  options.device_class = absl::StrCat(HostProcessorName(), " x ", UsableHostProcessors(), ", ",
                                      options.threads, " threads, ", options.backend,
                                      backend_options.empty() ? "" : ", ", backend_options);
  options.processors = UsableProcessors();
  options.memory_bytes = memory_mb * 1'000'000;
  options.recipes = RecipeOffers();
  options.recipes.emplace_back(kInt8Inference);
  options.codecs = CodecFamilies();
  return self;
}

void AddNameFlags(CLI::App& app, WorkerOptions& options) {
  app.add_option("--name", options.name,
                 "name of this worker, unique in the run (default: the host's name and an id from "
                 "--state-dir)");
  app.add_option("--site", options.site,
                 "what this device may be lost together with: a room, a power strip, an access "
                 "point. Copies of its state go to another site (default: the network of its "
                 "address)");
}

void AddStateFlag(CLI::App& app, WorkerOptions& options) {
  options.state_folder = DefaultStateFolder();
  app.add_option(
      "--state-dir", options.state_folder,
      "folder for this worker's identity, measurements and tuned kernels; '': keep nothing "
      "(default: $RUNNEL_STATE_DIR, else $XDG_STATE_HOME/runnel, else ~/.local/state/runnel)");
}

void AddMemoryFlag(CLI::App& app, int64_t& memory_mb) {
  app.add_option(
         "--memory-mb", memory_mb,
         "largest memory of this worker, in MB; central plans no larger stage here (default: the "
         "free memory)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

void AddDeviceMemoryFlag(CLI::App& app, WorkerOptions& options) {
  app.add_option_function<int64_t>(
         "--device-memory-mb",
         [&options](const int64_t& megabytes) {
           options.device_memory_bytes = megabytes * 1'000'000;
         },
         "largest memory of a GPU or DSP for each of the backends opencl and hexagon, in MB; "
         "central "
         "plans no larger stage there (default: all that the device has)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

void AddBackendOptionFlag(CLI::App& app, std::vector<std::string>& words) {
  app.add_option("--backend-option", words, BackendOptionsHelp())
      ->type_name("BACKEND.NAME=VALUE")
      ->allow_extra_args(false);
}

// --check takes only the flags that it needs: a user who gives others wants the worker to run.
void AddCheckFlag(CLI::App& app, bool& check) {
  CLI::Option* flag = app.add_flag(
      "--check", check,
      "list the backends of this device, their processors, and why a backend cannot be used; then "
      "end. GPUs and DSPs are checked: a small network must give the bytes of ref");
  for (CLI::Option* other : app.get_options()) {
    const std::string name = other->get_name();
    const bool is_needed = name == "--threads" || name == "--state-dir" ||
                           name == "--device-memory-mb" || name == "--backend-option";
    if (other != flag && !is_needed && other != app.get_help_ptr()) flag->excludes(other);
  }
}

int Check(const WorkerOptions& options) {
  const BackendVerdicts verdicts(options.state_folder);
  std::fputs(CheckReport(SettingsOf(options), verdicts).c_str(), stdout);
  return 0;
}

void AddAddressFlags(CLI::App& app, WorkerOptions& options) {
  app.add_option(
      "--listen", options.listen_address,
      "HOST:PORT where other devices dial this one's data links; port 0: any free port (default: "
      "the address of this host towards central)");
  app.add_option("--advertise", options.advertised_address,
                 "HOST:PORT that other devices dial instead of --listen, where a router or a "
                 "container passes the port on. Devices that cannot dial it use central as relay");
}

void AddComputeFlags(CLI::App& app, WorkerOptions& options) {
  app.add_option("--threads", options.threads, "compute threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--backend,--processors", options.backend,
                 absl::StrCat(
                     "backend of this device if the run has --backend auto: ",
                     absl::StrJoin(BackendNames(), ", "),
                     "; or several, the host's first, such as cpu,opencl: each instruction runs on "
                     "the processor that makes the stage fastest"))
      ->capture_default_str();
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::KeepStandardStreams();
  runnel::LimitHeaps();
  runnel::ServiceOptions service;
  runnel::WorkerOptions& options = service.daemon;
  CLI::App app{runnel::kAbout, "runnel-worker"};
  app.formatter(runnel::MakeHelpFormatter());
  app.footer(runnel::kExamples);
  app.set_version_flag("--version", runnel::VersionText("runnel-worker", runnel::kProtocolVersion));
  app.add_option("--central", options.central_address,
                 "central's control address, e.g. 127.0.0.1:7000 (default: the central that this "
                 "device joined)");
  runnel::MembershipFlags membership;
  app.add_option("--join", membership.join,
                 "TOKEN@HOST:PORT, or - to read it from standard input: join a cluster, once; a "
                 "TOKEN alone finds central where Avahi runs on both hosts. "
                 "`runnel-central token` prints the token, `runnel-central train` the address. "
                 "The certificate stays in --state-dir; later starts need no flag");
  runnel::AddNameFlags(app, options);
  runnel::AddAddressFlags(app, options);
  runnel::AddComputeFlags(app, options);
  app.add_flag("--once", service.once, "end when the run is over, or central is gone");
  auto* patience = app.add_option("--connect-timeout-ms", options.connect_timeout_ms,
                                  "longest wait for central; implies --once")
                       ->capture_default_str();
  runnel::AddStateFlag(app, options);
  int64_t memory_mb = 0;
  runnel::AddMemoryFlag(app, memory_mb);
  runnel::AddDeviceMemoryFlag(app, options);
  std::vector<std::string> backend_options;
  runnel::AddBackendOptionFlag(app, backend_options);
  const auto program = runnel::AddProgramCommand(app);
  app.add_flag("--insecure-network", membership.insecure_network, runnel::kInsecureNetworkHelp);
  const auto limits = runnel::AddLimitFlags(app);
  bool check = false;
  runnel::AddCheckFlag(app, check);
  const auto tune = runnel::AddTuneCommand(app);
  const auto infer = runnel::AddInferCommand(app);
  const auto numbers = runnel::AddNumbersCommand(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return runnel::Answer(app, error);
  }
  signal(SIGPIPE, SIG_IGN);
  auto read = runnel::BackendOptions::FromFlag(backend_options);
  if (!read.ok()) return runnel::ExitCode(read.status());
  options.backend_options = *std::move(read);
  if (program->command->parsed())
    return runnel::ExitCode(runnel::RunProgramCommand(*program, options.state_folder));
  if (tune->command->parsed())
    return runnel::ExitCode(runnel::RunTuneCommand(*tune, options.state_folder));
  if (infer->command->parsed()) return runnel::ExitCode(runnel::RunInferCommand(*infer));
  if (numbers->command->parsed()) return runnel::ExitCode(runnel::RunNumbersCommand(*numbers));
  runnel::RaiseFileLimit();
  if (check) return runnel::Check(options);
  const auto identity = runnel::FindIdentity(membership, options);
  if (!identity.ok()) return runnel::ExitCode(identity.status());
  if (options.central_address.empty()) {
    return runnel::ExitCode(absl::InvalidArgumentError(
        "--central: give central's address, or join its cluster with --join TOKEN@HOST:PORT"));
  }
  if (patience->count() > 0) service.once = true;
  const absl::Status limited = runnel::SetLimits(*limits, service);
  if (!limited.ok()) return runnel::ExitCode(limited);
  const absl::StatusOr<runnel::DeviceIdentity> self = runnel::Describe(memory_mb, service);
  if (!self.ok()) return runnel::ExitCode(self.status());
  return runnel::Run(service, *identity, membership.insecure_network);
}
