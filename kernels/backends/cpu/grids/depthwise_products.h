#pragma once

// Forward and input-gradient of codes with one channel a group (int8/depthwise.h).

#include "kernels/backends/cpu/grids/right_parts.h"

namespace runnel::cpu {

// low: of wide codes of the source; or null. bias: or null.
struct DepthwiseOperands {
  const int8_t* source = nullptr;
  const int8_t* low = nullptr;
  const float* bias = nullptr;
};
void RunDepthwiseProduct(const Call& call, const ConvShape& shape, const OutputTaps& taps,
                         bool input_gradient, const DepthwiseOperands& operands);

}  // namespace runnel::cpu
