#pragma once

// The control plane within one process, for tests and the simulator: nothing is serialized, all
// observers are called on the one thread of the transport, in the order of the sends. No hello
// deadline, no close time-out: nothing here can be stuck but an observer.

#include <memory>
#include <string>

#include "proto/transport/control_channel.h"

namespace runnel {

class LoopbackControl final : public ControlTransport {
 public:
  LoopbackControl();
  // After everything that it made.
  ~LoopbackControl() override;

  // Any text is an address, "" is not. An address with port 0 gets one of its own.
  absl::StatusOr<std::unique_ptr<CentralControl>> Listen(const std::string& address,
                                                         CentralControlObserver* observer) override;
  absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(const std::string& address,
                                                         int64_t timeout_ms,
                                                         WorkerControlObserver* observer) override;

  class Core;  // in loopback_control.cc

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace runnel
