#pragma once

// Batch norm on fixed points (the kFixedNorm codes of kernels/ir/op_traits.inc) in plain loops. All
// values row-major. Any thread.

#include "kernels/backends/host/range_norm.h"
#include "kernels/ir/program.h"

namespace runnel::host {

// statistics: as range batch norm has them, stats are means, then 1 / s.
void FixedNormForward(const Instruction& instruction, const Shape& shape, const float* x,
                      const float* scale, const float* shift, const RangeStatistics& statistics,
                      float* y);
void FixedNormEval(const Instruction& instruction, const Shape& shape, const float* x,
                   const float* scale, const float* shift, const float* running_mean,
                   const float* running_var, float* y);
// dx may not be x.
void FixedNormInputGradient(const Instruction& instruction, const Shape& shape, const float* dy,
                            const float* x, const float* scale, const float* stats, float* dx,
                            float* dscale_dshift);

}  // namespace runnel::host
