#pragma once

// Batch norm on fixed points (the kFixedNorm codes of kernels/ir/op_traits.inc) in plain loops. All
// values row-major. Any thread.

#include "kernels/backends/host/range_norm.h"
#include "kernels/ir/program.h"

namespace runnel::host {

// What becomes of a channel: y = factor * Q((x - mean) * inverse) + added.
struct FixedChannel {
  double mean = 0, inverse = 0, factor = 0, added = 0;
};
FixedChannel FixedChannelOf(double mean, double inverse, float scale, float shift);
FixedChannel FixedChannelOfRunning(float running_mean, float running_var, float scale, float shift);
// Of a channel of `count` elements in training: stats, and the running ones move.
struct FixedMoments {
  double mean = 0, variance = 0;  // biased
};
void FinishFixedStatistics(const Instruction& instruction, int64_t count, int64_t channels,
                           int64_t channel, const FixedMoments& moments,
                           const RangeStatistics& statistics);
// From the sums of dy and of dy * Q(u).
void PutFixedGradients(double sum, double fixed_product, float& dscale, float& dshift);

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
