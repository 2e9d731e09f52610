#pragma once

// The event loop of one process in a simulation: its tasks are events of the SimulatedNetwork, in
// virtual time. The process may be stopped and continued (SIGSTOP, SIGCONT), and it may end at any
// moment (SIGKILL). Single-threaded.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "proto/transport/link/event_loop.h"
#include "tests/support/in_process/simulated.h"

namespace runnel {

class VirtualLoop final : public EventLoop {
 public:
  // The network outlives the loop.
  explicit VirtualLoop(SimulatedNetwork* network)
      : network_(network), core_(std::make_shared<Core>()) {}
  ~VirtualLoop() override { End(); }
  VirtualLoop(const VirtualLoop&) = delete;
  VirtualLoop& operator=(const VirtualLoop&) = delete;

  void Post(Task task) override { PostAfter(0, std::move(task)); }
  void PostAfter(int64_t delay_ns, Task task) override;
  const Clock& clock() const override { return network_->clock(); }

  // While it is frozen nothing runs; what came due meanwhile runs in order when it is not.
  void SetFrozen(bool frozen);
  bool frozen() const { return core_->frozen; }
  // Drops all tasks, and those that come. What they hold is destroyed before this returns.
  void End();

 private:
  struct Core {
    bool frozen = false;
    bool ended = false;
    uint64_t next = 0;
    std::map<uint64_t, Task> tasks;  // that have not run, by their number
    std::deque<uint64_t> due;        // of them, those whose time has come
  };
  static void RunDue(Core& core);

  SimulatedNetwork* const network_;
  const std::shared_ptr<Core> core_;
};

}  // namespace runnel
