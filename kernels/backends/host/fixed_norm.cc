#include "kernels/backends/host/fixed_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/ir/arithmetic/fixed_point.h"

namespace runnel::host {
namespace {

constexpr int kAffineBits = 8, kStatisticBits = 16, kGradientBits = 15;
constexpr double kEpsilon = 0x1p-15;

// 1 / s.
double InverseOf(double variance) {
  return 1 / (FixedValue(std::sqrt(std::max(variance, 0.0)), kStatisticBits) + kEpsilon);
}

}  // namespace

FixedChannel FixedChannelOf(double mean, double inverse, float scale, float shift) {
  return {mean, inverse, FixedValue(scale, kAffineBits), FixedValue(shift, kAffineBits)};
}

FixedChannel FixedChannelOfRunning(float running_mean, float running_var, float scale,
                                   float shift) {
  return FixedChannelOf(FixedValue(running_mean, kStatisticBits),
                        static_cast<float>(InverseOf(running_var)), scale, shift);
}

void FinishFixedStatistics(const Instruction& instruction, int64_t count, int64_t channels,
                           int64_t channel, const FixedMoments& moments,
                           const RangeStatistics& statistics) {
  const auto number = static_cast<double>(count);
  const double unbiased = count > 1 ? moments.variance * number / (number - 1) : moments.variance;
  const double rate = instruction.attributes.momentum;
  statistics.stats[channel] = static_cast<float>(FixedValue(moments.mean, kStatisticBits));
  statistics.stats[channels + channel] = static_cast<float>(InverseOf(moments.variance));
  float& running_mean = statistics.running_mean[channel];
  float& running_var = statistics.running_var[channel];
  running_mean = static_cast<float>((1 - rate) * running_mean + rate * moments.mean);
  running_var = static_cast<float>((1 - rate) * running_var + rate * unbiased);
}

void PutFixedGradients(double sum, double fixed_product, float& dscale, float& dshift) {
  dscale = static_cast<float>(FixedValue(fixed_product, kGradientBits));
  dshift = static_cast<float>(FixedValue(sum, kGradientBits));
}

}  // namespace runnel::host
