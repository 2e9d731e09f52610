#pragma once

// Range batch norm (the kRangeNorm codes of kernels/ir/op_traits.inc) in plain loops. All values
// row-major. Any thread.

#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"

namespace runnel::host {

// sigma is estimated as this many mean ranges of chunks of `size` elements, which may be broken.
double RangeFactor(double size);

// What normalises: the running mean and variance, or what becomes of them and the stats.
struct RangeStatistics {
  float* stats = nullptr;  // float[2 * channels]: means, then 1 / (sigma + epsilon) on its grid
  float* running_mean = nullptr;
  float* running_var = nullptr;
};

void RangeNormForward(const Instruction& instruction, const Shape& shape, const float* x,
                      const float* scale, const float* shift, const RangeStatistics& statistics,
                      float* y);
void RangeNormEval(const Instruction& instruction, const Shape& shape, const float* x,
                   const float* scale, const float* shift, const float* running_mean,
                   const float* running_var, float* y);
void RangeNormInputGradient(const Instruction& instruction, const StepContext& context,
                            const Shape& shape, const float* dy, const float* x, const float* scale,
                            const float* stats, float* dx, float* dscale_dshift);

}  // namespace runnel::host
