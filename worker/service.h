#pragma once

// Keeps a worker at work: it dials central, takes part in a run, and when that is over or central
// is gone it dials again, with longer and longer pauses, for ever. So workers outlive runs, and
// those that wait while central is started again join by themselves. While a limit of the device
// holds it, it takes no part.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "worker/core/rejoin_policy.h"
#include "worker/daemon.h"
#include "worker/membership/central_lives.h"

namespace runnel {

struct ServiceOptions {
  // memory_bytes 0: the free memory when a run begins.
  WorkerOptions daemon;
  // Serve one run only, and wait for central as long as WorkerOptions allows.
  bool once = false;
  // Why the device takes no part now; empty: it may (DeviceLimits::Reason). Called by one thread at a
  // time. Null: it has no limits.
  std::function<std::string()> held_by = {};
};

class WorkerService {
 public:
  // parts: of each daemon; borrowed, outlive the service.
  WorkerService(ServiceOptions options, const Daemon::Parts& parts);

  // Runs until it is told to end, or with `once` until the run is over (OK). Errors that another
  // dial would meet again: a refusal by central (FailedPrecondition), addresses and rights; with
  // `once` also the error that ended the run.
  absl::Status Run();
  // The first time: leaves the run that it takes part in, when central has moved its stage; Run
  // returns then. At once if it takes part in none, and the second time. Any thread.
  void Stop();
  // Asks held_by now, as Run does every second. A worker that is held gives its stage away and waits;
  // with `once` Run returns. Any thread.
  void CheckLimits();

 private:
  // Serves one run, or makes one vain dial.
  absl::Status Serve(bool& welcomed);
  // False: told to end meanwhile.
  bool Pause(int64_t pause_ms);
  // Until no limit holds the device. False: told to end meanwhile, or there is no second run.
  bool AwaitLimits();
  void WatchLimits();
  absl::Status ServeForEver();

  const ServiceOptions options_;
  Daemon::Parts parts_;
  CentralLives lives_;
  RejoinPolicy rejoin_;
  // Runs left because of a limit: central takes nobody again who has left it, but for a new start.
  int64_t limited_runs_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  Daemon* daemon_ = nullptr;  // the daemon that serves now; guarded by mutex_
  int stops_ = 0;             // guarded by mutex_
  bool held_ = false;         // by a limit; guarded by mutex_
  bool leaves_ = false;       // a limit has told daemon_ to leave; guarded by mutex_
  bool ended_ = false;        // Run is over; guarded by mutex_
  std::mutex limits_mutex_;   // of held_by
};

}  // namespace runnel
