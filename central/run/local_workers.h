#pragma once

// The workers that central starts on its own host, for a run or for `profile`: one place that
// knows their arguments, recognises them when they join and ends them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/run/worker_process.h"
#include "proto/transport/control/control.h"

namespace runnel {

// One thread, which must live as long as the process: the workers die with the thread that started
// them. Destroying it kills whoever still runs.
class LocalWorkers {
 public:
  // Starts `count` workers that dial central at `control_address`, each with so many compute
  // threads. Where that address is not a loopback one, their neighbours may be other devices: they
  // then listen on the same host address with --insecure-network, which central was given too.
  // NotFound: there is no worker binary. Others as WorkerProcess::Start.
  absl::Status Start(int64_t count, int64_t threads, const std::string& control_address);

  // Whether it was started here: it shows the secret that it was given in its environment. A
  // process number would not do: in another container it may be the same by accident.
  bool Contains(const WorkerHello& hello) const;
  // Unavailable: one has ended. For the time before all have joined; later its stream tells.
  absl::Status CheckAlive() const;

  // Waits until all have ended by themselves, some seconds at most.
  void AwaitEnds();
  // Ends those that still run.
  void Terminate();

 private:
  std::vector<std::unique_ptr<WorkerProcess>> processes_;
  std::vector<std::string> secrets_;
};

// 128 truly random bits as text, for what one process shows another. It decides nothing that
// training depends on.
std::string RandomSecret();

}  // namespace runnel
