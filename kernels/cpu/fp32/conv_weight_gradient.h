#pragma once

// Weight-gradients as sums of outer products over pixels: of an output pixel's gradient and the
// window of inputs that it saw.

#include "kernels/cpu/call.h"
#include "kernels/cpu/fp32/conv_axes.h"

namespace runnel::fp32 {

// All tensors channels-last but dweight, (outs, ins / groups, taps). Adds to dweight where the
// context says so.
struct WeightGradient {
  cpu::Image x_image, y_image;
  Axis h, w;  // forward
  int64_t groups = 1;
  const float* x = nullptr;
  const float* dy = nullptr;
  float* dweight = nullptr;
};

void RunWeightGradient(const cpu::Call& call, const WeightGradient& gradient);

}  // namespace runnel::fp32
