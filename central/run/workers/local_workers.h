#pragma once

// The workers that central starts on its own host, for a run or for `profile`: one place that
// knows their arguments, recognises them when they join and ends them.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "central/run/workers/worker_process.h"
#include "proto/base/backend_options.h"
#include "proto/crypto/identity.h"
#include "proto/transport/control/control.h"

namespace runnel {

// How workers come by certificates. Both null: streams are not encrypted.
struct Enrolment {
  // Of a worker that central starts.
  std::function<absl::StatusOr<Identity>(const std::string& name)> issue_identity;
  // Opens the door for devices that have a token and no certificate yet, beside central's control
  // address; says where it is.
  std::function<absl::StatusOr<std::string>(const std::string& control_address)> open_door;
  // Leaves its port to another central.
  std::function<void()> close_door = nullptr;

  bool encrypts() const { return issue_identity != nullptr; }
};

// The commands by which workers that dial in are started: each time, and the first time, where
// streams are encrypted. Opens the door.
absl::StatusOr<std::vector<std::string>> JoinCommands(const Enrolment& enrolment,
                                                      const std::string& control_address);
// For people.
inline std::string HowToJoin(const std::vector<std::string>& commands) {
  return absl::StrJoin(commands, " or, the first time, ");
}

// What each local worker is told.
struct LocalWorkerOptions {
  int64_t threads = 1;  // compute threads
  BackendOptions backend_options = {};
};

// One thread, which must live as long as the process: the workers die with the thread that started
// them. Destroying it kills whoever still runs.
class LocalWorkers {
 public:
  // Starts `count` workers that dial central at `control_address`. Where that address is not a loopback one, their neighbours may be other devices: they
  // then listen on the same host address, with --insecure-network unless streams are encrypted.
  // NotFound: there is no worker binary. Others as WorkerProcess::Start.
  absl::Status Start(int64_t count, const LocalWorkerOptions& options,
                     const std::string& control_address, const Enrolment& enrolment);

  // A StartAgain will come.
  void ExpectStart() { ++starts_to_come_; }
  // Starts one again that was lost, under its name, as the others. After ExpectStart. Errors as
  // Start.
  absl::Status StartAgain(const std::string& name);

  // Whether it was started here: it shows the secret that it was given in its environment. A
  // process number would not do: in another container it may be the same by accident.
  bool Contains(const WorkerHello& hello) const;
  // Those of the names whose last process has ended. For the time before it has joined; later its
  // stream tells. Nobody, as long as a start is to come.
  struct EndedEarly {
    std::string name;
    absl::Status why;  // Unavailable: it was killed. Aborted: by itself, and would again
  };
  std::vector<EndedEarly> FindEnded() const;

  // For people: who has ended since the last call, and how; of those whose end was not in order.
  // Streams say that a worker is gone, only this says that the system has killed it.
  std::vector<std::string> TakeEnds();

  // Waits until all have ended by themselves, some seconds at most.
  void AwaitEnds();
  // Ends those that still run.
  void Terminate();

 private:
  absl::Status StartOne(const std::string& name);

  std::string binary_;
  std::vector<std::string> arguments_;  // of all
  int64_t threads_ = 1;
  Enrolment enrolment_;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;
  std::vector<std::string> names_;  // of processes_
  std::vector<std::string> secrets_;
  std::set<size_t> told_;  // in processes_: of their end
  int starts_to_come_ = 0;
};

// 128 truly random bits as text, for what one process shows another. It decides nothing that
// training depends on.
std::string RandomSecret();

}  // namespace runnel
