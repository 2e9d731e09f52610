#pragma once

// When a model's training needs more bits on its links forward and fewer backward, as AccEPT (4.3)
// publishes it for a run of 200 epochs: forward 2 bits, then 3, then 4; backward 8, then 4.

#include <cstdint>

namespace runnel {

struct BitSwitches {
  static constexpr int64_t kEpochs = 200;  // epochs of the run that the switch epochs belong to

  // MobileNetV2's, which every model has that the paper does not tell of.
  int64_t forward_3_bits = 130;
  int64_t forward_4_bits = 175;
  int64_t backward_4_bits = 160;

  friend bool operator==(const BitSwitches&, const BitSwitches&) = default;
};

}  // namespace runnel
