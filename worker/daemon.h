#pragma once

// The worker in real time: WorkerCore on the calling thread, with the backends of this program and
// a thread for each lane.

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/transport/link/event_loop.h"
#include "worker/core/backend_arithmetic.h"
#include "worker/core/worker_core.h"

namespace runnel {

class Daemon {
 public:
  // All are borrowed and outlive the daemon.
  struct Parts {
    Transport* transport = nullptr;
    ControlTransport* control = nullptr;
    const Clock* clock = nullptr;
    Logger* logger = nullptr;
    CentralLives* lives = nullptr;                          // WorkerCore's
    std::function<void(Telemetry&)> fill_device = nullptr;  // WorkerCore's
  };

  Daemon(WorkerOptions options, Parts parts);

  // Runs until the worker's end; returns the status of WorkerCore::Start.
  absl::Status Run();
  // As WorkerCore::Leave; Run ends with the worker. Any thread.
  void Leave(std::string reason = "") { core_.Leave(std::move(reason)); }
  void Stop() { core_.Stop(); }
  // Central has said that the worker takes part. After Run.
  bool welcomed() const { return core_.welcomed(); }

 private:
  ThreadLoop loop_;
  BackendArithmetic arithmetic_;
  std::unique_ptr<EnergyCounter> energy_;  // null: the kernel shows none
  WorkerCore core_;
  absl::Status result_;
};

}  // namespace runnel
