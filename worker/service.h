#pragma once

// Keeps a worker at work: it dials central, takes part in a run, and when that is over or central
// is gone it dials again, with longer and longer pauses, for ever. So workers outlive runs, and
// those that wait while central is started again join by themselves.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "worker/core/rejoin_policy.h"
#include "worker/daemon.h"
#include "worker/membership/central_lives.h"

namespace runnel {

struct ServiceOptions {
  // memory_bytes 0: what is free when a run begins.
  WorkerOptions daemon;
  // For one run, and as long as WorkerOptions says until central answers.
  bool once = false;
};

class WorkerService {
 public:
  // parts: of each daemon; borrowed, outlive the service.
  WorkerService(ServiceOptions options, const Daemon::Parts& parts);

  // Until it is told to end, or with `once` until the run is over (OK). Errors that another dial
  // would meet again: what of this worker central does not want (FailedPrecondition), addresses and
  // rights; with `once` also what ended the run.
  absl::Status Run();
  // The first time: leaves the run that it takes part in, when central has moved its stage; Run
  // returns then. At once if it takes part in none, and the second time. Any thread.
  void Stop();

 private:
  // One run, or one try.
  absl::Status Serve(bool& welcomed);
  // False: told to end meanwhile.
  bool Pause(int64_t pause_ms);

  const ServiceOptions options_;
  Daemon::Parts parts_;
  CentralLives lives_;
  RejoinPolicy rejoin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Daemon* daemon_ = nullptr;  // that serves now; guarded by mutex_
  int stops_ = 0;             // guarded by mutex_
};

}  // namespace runnel
