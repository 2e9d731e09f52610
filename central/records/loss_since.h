#pragma once

#include <limits>

#include "proto/transport/control/control.h"

namespace runnel {

// The mean training loss since it was asked for last, from sums that a stage reports.
class LossSince {
 public:
  // Mean over the samples since the last call; what that said if there are no new ones. NaN before
  // any.
  double Mean(const Telemetry& now) {
    if (now.loss_samples > seen_.loss_samples) {
      mean_ = (now.loss_sum - seen_.loss_sum) /
              static_cast<double>(now.loss_samples - seen_.loss_samples);
      seen_ = now;
    }
    return mean_;
  }
  // Another stage reports from now on, from 0.
  void Restart() { seen_ = Telemetry(); }
  double last() const { return mean_; }

 private:
  Telemetry seen_;
  double mean_ = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace runnel
