#pragma once

// What backends of the host share of range batch norm (the kRangeNorm codes of
// kernels/ir/op_traits.inc): a channel's statistics. Any thread.

#include "kernels/ir/program.h"

namespace runnel::host {

inline constexpr int64_t kMostRangeChunks = 16;
// The chunks of a channel's list of elements, sample by sample.
struct RangeChunks {
  int64_t count = 0;  // of the list
  int64_t chunks() const;
  int64_t Begin(int64_t chunk) const { return count * chunk / chunks(); }
  // sigma over the sum of the chunks' ranges.
  double factor() const;
};

// sigma is estimated as this many mean ranges of chunks of `size` elements, which may be broken.
double RangeFactor(double size);

// What normalises: the running mean and variance, or what becomes of them and the stats.
struct RangeStatistics {
  float* stats = nullptr;  // float[2 * channels]: means, then 1 / (sigma + epsilon) on its grid
  float* running_mean = nullptr;
  float* running_var = nullptr;
};

// Of a channel in training, from the sum of its elements and that of its chunks' ranges: all but the
// grid of `inverse` = 1 / (sigma + epsilon).
void FinishRangeStatistics(const Instruction& instruction, const RangeChunks& chunks, double sum,
                           double ranges, int64_t channel, const RangeStatistics& statistics,
                           float* inverse);
// 1 / (sigma + epsilon) of an evaluation, not on its grid yet.
float RangeInverse(const Instruction& instruction, float running_var);
// A few values on the grid of their range. y may be x.
void PutOnRange(const float* x, int64_t count, int bits, float* y);

}  // namespace runnel::host
