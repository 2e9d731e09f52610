#include "kernels/backends/host/range_norm.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/ir/arithmetic/affine_grid.h"

namespace runnel::host {

int64_t RangeChunks::chunks() const { return std::clamp<int64_t>(count / 2, 1, kMostRangeChunks); }

double RangeChunks::factor() const {
  const auto number = static_cast<double>(chunks());
  return RangeFactor(static_cast<double>(count) / number) / number;
}

void PutOnRange(const float* x, int64_t count, int bits, float* y) {
  ValueRange range;
  for (int64_t i = 0; i < count; ++i) range.Add(x[i]);
  const AffineGrid grid = AffineGridOf(range.Normal(), bits);
  for (int64_t i = 0; i < count; ++i) y[i] = AffineValue(x[i], grid);
}

float RangeInverse(const Instruction& instruction, float running_var) {
  const double sigma = std::sqrt(std::max(0.0, static_cast<double>(running_var)));
  return static_cast<float>(1 / (sigma + instruction.attributes.epsilon));
}

void FinishRangeStatistics(const Instruction& instruction, const RangeChunks& chunks, double sum,
                           double ranges, int64_t channel, const RangeStatistics& statistics,
                           float* inverse) {
  const double mean = sum / static_cast<double>(chunks.count), sigma = chunks.factor() * ranges;
  statistics.stats[channel] = static_cast<float>(mean);
  *inverse = static_cast<float>(1 / (sigma + instruction.attributes.epsilon));
  float& running_mean = statistics.running_mean[channel];
  float& running_var = statistics.running_var[channel];
  const double rate = instruction.attributes.momentum;
  running_mean = static_cast<float>((1 - rate) * running_mean + rate * mean);
  running_var = static_cast<float>((1 - rate) * running_var + rate * sigma * sigma);
}

double RangeFactor(double size) {
  const double shape = 1 + std::sqrt(std::numbers::pi * std::log(4.0));
  return 0.5 * 0.35 * shape / std::sqrt(2 * std::log(std::max(size, 2.0)));
}

}  // namespace runnel::host
