#pragma once

// The control plane within one process, for tests and the simulator: nothing is serialized, all
// observers are called on the one thread of the transport, in the order of the sends. No hello
// deadline, no close time-out: nothing here can be stuck but an observer.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/transport/control/control_channel.h"

namespace runnel {

class LoopbackControl final : public ControlTransport {
 public:
  LoopbackControl();
  // After everything that it made.
  ~LoopbackControl() override;

  // Any text but "" is an address; one that ends in ":0" gets a port of its own, counted up.
  absl::StatusOr<std::unique_ptr<CentralControl>> Listen(const std::string& address,
                                                         CentralControlObserver* observer) override;
  absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(const std::string& address,
                                                         int64_t timeout_ms,
                                                         WorkerControlObserver* observer) override;

  // Breaks a stream as a killed worker does: both ends see Unavailable, after what was sent before.
  void Break(ConnectionId id);

  class Core;  // in loopback_control.cc

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace runnel
