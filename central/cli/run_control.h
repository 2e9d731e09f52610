#pragma once

// The control transport of runs: a central of this user that waits for one (WaitingRoom) makes way
// where it has the port that the run is to listen on.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "proto/base/log.h"
#include "proto/transport/control/control_channel.h"

namespace runnel {

class RunControl final : public ControlTransport {
 public:
  // Asks who waits at this address to leave it; NotFound: nobody waits there.
  using MakeWayFn = std::function<absl::Status(const std::string& address)>;

  // Borrowed; both outlive this.
  RunControl(ControlTransport* control, Logger* logger, MakeWayFn make_way)
      : control_(control), logger_(logger), make_way_(std::move(make_way)) {}

  absl::StatusOr<std::unique_ptr<CentralControl>> Listen(const std::string& address,
                                                         CentralControlObserver* observer) override;
  absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(const std::string& address,
                                                         int64_t timeout_ms,
                                                         WorkerControlObserver* observer) override {
    return control_->Connect(address, timeout_ms, observer);
  }

 private:
  ControlTransport* const control_;
  Logger* const logger_;
  const MakeWayFn make_way_;
};

}  // namespace runnel
