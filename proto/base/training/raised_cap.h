#pragma once

#include <cstdint>

namespace runnel {

// By so many steps a momentum leads without loss: measured up to three (FIGURES, "Accuracy under
// staleness" and "Seconds to an accuracy"), and with nine it leads astray.
inline constexpr int64_t kMostStepsLed = 3;

// Whether a stage with `cap` micro-batches in flight, whose gradients are up to `steps_old` steps
// old, needs help beyond its optimizer's: a rate that grows, look-ahead and no lead. Stages with the
// papers' cap N - i (`usual_cap`) never do.
inline bool IsRaised(int64_t cap, int64_t usual_cap, int64_t steps_old) {
  return cap > usual_cap && steps_old > kMostStepsLed;
}

}  // namespace runnel
