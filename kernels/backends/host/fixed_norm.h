#pragma once

// What backends of the host share of batch norm on fixed points (the kFixedNorm codes of
// kernels/ir/op_traits.inc). Any thread.

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

}  // namespace runnel::host
