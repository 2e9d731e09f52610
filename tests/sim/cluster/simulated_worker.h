#pragma once

// A device with a worker process on it: the production WorkerCore, RejoinPolicy and all below over
// virtual loops, lanes and links. The process may be killed, stopped, continued and started again.

#include <cstdint>
#include <memory>
#include <string>

#include "tests/sim/cluster/world.h"
#include "tests/support/in_process/virtual_loop.h"
#include "worker/core/rejoin_policy.h"
#include "worker/core/worker_core.h"

namespace runnel {

class SimulatedWorker {
 public:
  // The device with this name and number; no process runs on it yet. world outlives it.
  // is_behind: nobody can dial it.
  SimulatedWorker(World* world, std::string name, int number, std::string central_address,
                  bool is_behind = false);
  ~SimulatedWorker();

  void Start();
  // SIGKILL.
  void Kill();
  void SetFrozen(bool frozen);
  // SIGTERM; the second one ends it at once.
  void Leave();

  bool runs() const { return process_ != nullptr; }
  bool frozen() const { return frozen_; }
  // It was told to.
  bool leaves() const;
  const std::string& name() const { return name_; }

 private:
  class Arithmetic;
  // What lives as long as a process.
  struct Process;

  void Dial();
  void EndRun(const absl::Status& status);
  void Exit(const absl::Status& status);

  World& world_;
  const std::string name_;
  const std::string central_address_;
  const uint64_t draws_;  // stream of its own
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<ControlTransport> control_;
  WorldLogger logger_;
  std::string site_;  // empty: it says none
  int64_t starts_ = 0;
  bool frozen_ = false;
  std::unique_ptr<Process> process_;
};

}  // namespace runnel
