#pragma once

// What a recipe that chooses widths while it trains keeps of one operand of an operator
// (kernels/ir/arithmetic/fixed_width.h): a state of the operator (TensorRole::kWidths), as floats.
// Pure functions; any thread.

#include <cmath>
#include <cstdint>

namespace runnel {

struct WidthState {
  float bits = 0;      // 8, 16 or 24; 0: not measured yet
  float exponent = 0;  // a step of the grid is 2^exponent
  float moving = 0;    // moving mean of the exponents that were measured
  float wait = 0;      // micro-batches until the next measurement
  float measured = 0;  // measurements so far
  float error = 0;     // what rounding did to the mean, when it was last measured
  float used[3] = {};  // micro-batches in 8, 16, 24 bits
  float padding[7] = {};
};
static_assert(sizeof(WidthState) == 64);

inline constexpr int64_t kWidthWords = sizeof(WidthState) / sizeof(float);
// The weight as the forward reads it, the input, the weight as the input-gradient reads it, the
// gradient of the output.
inline constexpr int64_t kWidthRows = 4;
inline constexpr int kMostWidthExponent = 256;

// Whether it can have come from training.
inline bool IsValid(const WidthState& state) {
  const auto is_count = [](float x) { return std::isfinite(x) && x >= 0; };
  const bool is_width = state.bits == 0 || state.bits == 8 || state.bits == 16 || state.bits == 24;
  return is_width && state.exponent == std::floor(state.exponent) &&
         std::abs(state.exponent) <= kMostWidthExponent && std::isfinite(state.moving) &&
         is_count(state.wait) && is_count(state.measured) && is_count(state.error) &&
         is_count(state.used[0]) && is_count(state.used[1]) && is_count(state.used[2]);
}

}  // namespace runnel
