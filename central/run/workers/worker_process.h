#pragma once

// Worker processes that central starts on its own host and supervises. Stage 0 is always such
// a process, so that raw samples never leave central's host.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace runnel {

struct WorkerCommand {
  std::string binary;                  // path
  std::vector<std::string> arguments;  // without the program's name
  int64_t threads = 1;                 // OMP_NUM_THREADS and OPENBLAS_NUM_THREADS
  std::string log_level;               // RUNNEL_LOG_LEVEL; empty: as central has it
  std::vector<std::pair<std::string, std::string>> environment;  // on top of central's
};

// How a process ended.
struct ProcessExit {
  bool signaled = false;
  int code = 0;  // exit code, or the signal's number

  bool ok() const { return !signaled && code == 0; }
  // "exit code 3", "signal 9 (Killed)".
  std::string ToString() const;

  friend bool operator==(const ProcessExit&, const ProcessExit&) = default;
};

// One child process. One thread at a time.
//
// The child dies with the *thread* that started it (PR_SET_PDEATHSIG): start it from one that lives
// as long as central, the main thread. It has a process group of its own, so that Ctrl-C in the
// terminal reaches central alone, and /dev/null as its input.
class WorkerProcess {
 public:
  // NotFound, PermissionDenied, ... if the binary cannot be executed; ResourceExhausted if no
  // process can be had.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const WorkerCommand& command);

  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  // Never leaves a process: kills (SIGKILL) and reaps what still runs.
  ~WorkerProcess();

  // Stays what it was after the end, when the number may be another process's.
  pid_t pid() const { return pid_; }
  // Reaps without waiting. Empty while it runs; the same answer ever after its end.
  std::optional<ProcessExit> Poll();
  // Waits for the end for at most this long. Empty: it still runs.
  std::optional<ProcessExit> Wait(int64_t timeout_ms);
  // SIGTERM, then SIGKILL if it still runs after `grace_ms`; reaps. OK to call after its end.
  ProcessExit Terminate(int64_t grace_ms);

 private:
  WorkerProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  void Signal(int signal);

  pid_t pid_;
  int pidfd_;  // -1 where the kernel has none
  std::optional<ProcessExit> exit_;
};

// The worker's binary: environment variable RUNNEL_WORKER if set, else "runnel-worker" next to this
// executable. NotFound says where it was looked for and what to set.
absl::StatusOr<std::string> FindWorkerBinary();
// The same for a given directory and value ("" : not set).
absl::StatusOr<std::string> FindWorkerBinaryIn(const std::string& directory,
                                               const std::string& from_environment);

}  // namespace runnel
