#pragma once

// Values that f16 cannot hold, counted where instructions round to it.

#include <atomic>
#include <cstdint>

#include "kernels/ir/op_code.h"

namespace runnel {

struct RangeCounts {
  int64_t saturated = 0;   // beyond the largest value, which they become
  int64_t underflows = 0;  // not 0, but rounded to 0
};

// Counts of a stage. Any thread may add.
class RangeTally {
 public:
  void Add(OpCode code, const RangeCounts& counts) {
    if (counts.saturated + counts.underflows == 0) return;
    if (!MakesGradients(code)) {
      activations_saturated_ += counts.saturated;
      return;
    }
    gradients_saturated_ += counts.saturated;
    gradient_underflows_ += counts.underflows;
  }
  // The first output of these is a gradient of values; copies make none.
  static bool MakesGradients(OpCode code) {
    return code == OpCode::kSoftmaxCrossEntropy || TraitsOf(code).part == Part::kInputGradient;
  }

  int64_t activations_saturated() const { return activations_saturated_; }
  int64_t gradients_saturated() const { return gradients_saturated_; }
  int64_t gradient_underflows() const { return gradient_underflows_; }

 private:
  std::atomic<int64_t> activations_saturated_ = 0, gradients_saturated_ = 0,
                       gradient_underflows_ = 0;
};

}  // namespace runnel
