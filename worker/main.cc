// runnel-worker: the daemon of a device.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec.h"
#include "kernels/backend.h"
#include "kernels/recipe.h"
#include "proto/process/host_memory.h"
#include "proto/process/signal_watch.h"
#include "proto/process/spdlog_logger.h"
#include "proto/transport/control/wire_check.h"
#include "proto/transport/grpc/grpc_control.h"
#include "proto/transport/grpc/grpc_transport.h"
#include "proto/transport/grpc/insecure_network.h"
#include "worker/daemon.h"
#include "worker/heap_limits.h"
#include "worker/measure/device_description.h"

namespace runnel {
namespace {

// Host and process; what a name may not hold becomes '-'.
std::string DefaultName() {
  constexpr size_t kMaxHostBytes = 48;
  char host[256] = "worker";
  gethostname(host, sizeof(host) - 1);
  std::string name = absl::StrCat("w", host);
  if (absl::ascii_isalnum(host[0])) name = host;
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_') c = '-';
  }
  return absl::StrCat(name.substr(0, kMaxHostBytes), "-", getpid());
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "runnel-worker: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
      return 2;
    default:
      return 1;
  }
}

int Run(const DaemonOptions& options, bool insecure_network) {
  SignalWatch signals;
  const std::unique_ptr<Logger> logger = MakeSpdlogLogger("worker");
  MonotonicClock clock;
  if (insecure_network) logger->Log(Severity::kWarning, kInsecureNetworkWarning);
  const std::unique_ptr<Transport> transport =
      MakeGrpcTransport({.allow_non_loopback = insecure_network});
  const std::unique_ptr<ControlTransport> control =
      MakeGrpcControl({.allow_non_loopback = insecure_network});
  Daemon daemon(options, {transport.get(), control.get(), &clock, logger.get()});
  signals.Begin([&daemon](int) { daemon.Stop(); });
  const absl::Status status = daemon.Run();
  signals.End();
  return ExitCode(status);
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::LimitHeaps();
  runnel::DaemonOptions options;
  CLI::App app{
      "Runnel's worker: dials a central node, offers this device, and trains the stage that it is "
      "given."};
  app.add_option("--central", options.central_address,
                 "central's control address, e.g. 127.0.0.1:7000")
      ->required();
  app.add_option("--name", options.name,
                 "name of this worker, unique in the run (default: host and process)");
  app.add_option(
      "--listen", options.listen_address,
      "address for data links, by which the other devices reach this one; port 0: any free "
      "one (default: the address that this host has towards central)");
  app.add_option("--threads", options.threads, "compute threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--backend", options.backend,
                 absl::StrCat("what computes here where central leaves it open (--backend auto): ",
                              absl::StrJoin(runnel::BackendNames(), ", ")))
      ->capture_default_str();
  app.add_option("--connect-timeout-ms", options.connect_timeout_ms, "how long to wait for central")
      ->capture_default_str();
  options.state_folder = runnel::DefaultStateFolder();
  app.add_option("--state-dir", options.state_folder,
                 "folder that keeps what this worker measures of itself, so that the next run need "
                 "not wait for it; '': measure every time (default: $RUNNEL_STATE_DIR, else "
                 "$XDG_STATE_HOME/runnel, else ~/.local/state/runnel)");
  int64_t memory_mb = 0;
  app.add_option(
         "--memory-mb", memory_mb,
         "memory that this worker may take, in MB; central gives it no stage that takes more "
         "(default: what is free)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  bool insecure_network = false;
  app.add_flag("--insecure-network", insecure_network, runnel::kInsecureNetworkHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.name.empty()) options.name = runnel::DefaultName();
  if (const absl::Status status = runnel::CheckWorkerName("--name", options.name); !status.ok())
    return runnel::ExitCode(status);
  std::string device = absl::StrCat("worker ", options.name, "\nthreads ", options.threads);
  if (options.backend != "auto") absl::StrAppend(&device, "\nbackend ", options.backend);
  options.device = runnel::DescribeDevice(device);
  const char* secret = std::getenv(runnel::kWorkerSecretVariable);
  if (secret != nullptr) options.secret = secret;
  options.memory_bytes = memory_mb > 0 ? memory_mb * 1'000'000 : runnel::AvailableMemoryBytes();
  options.backends = runnel::BackendNames();
  options.recipes = runnel::RecipeOffers();
  options.codecs = runnel::CodecFamilies();
  return runnel::Run(options, insecure_network);
}
