#include "kernels/backends/host/fixed_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/ir/arithmetic/fixed_point.h"

namespace runnel::host {
namespace {

constexpr int kAffineBits = 8, kStatisticBits = 16, kGradientBits = 15;
constexpr double kEpsilon = 0x1p-15;

// body(position) of each element of a channel, sample by sample.
template <typename Body>
void OverChannel(const Shape& shape, int64_t channel, const Body& body) {
  const int64_t inner = shape.elements() / (shape[0] * shape[1]);
  for (int64_t n = 0; n < shape[0]; ++n) {
    const int64_t begin = (n * shape[1] + channel) * inner;
    for (int64_t i = begin; i < begin + inner; ++i) body(i);
  }
}

FixedMoments MomentsOf(const Shape& shape, int64_t channel, const float* x) {
  const double count = static_cast<double>(shape.elements() / shape[1]);
  double sum = 0, squares = 0;
  OverChannel(shape, channel, [&](int64_t i) { sum += x[i]; });
  const double mean = sum / count;
  OverChannel(shape, channel, [&](int64_t i) { squares += (x[i] - mean) * (x[i] - mean); });
  return {mean, squares / count};
}

// 1 / s.
double InverseOf(double variance) {
  return 1 / (FixedValue(std::sqrt(std::max(variance, 0.0)), kStatisticBits) + kEpsilon);
}

void Normalise(int bits, const Shape& shape, int64_t channel, const float* x,
               const FixedChannel& by, float* y) {
  OverChannel(shape, channel, [&](int64_t i) {
    const double u = FixedValue((x[i] - by.mean) * by.inverse, bits);
    y[i] = static_cast<float>(by.factor * u + by.added);
  });
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

void FixedNormForward(const Instruction& instruction, const Shape& shape, const float* x,
                      const float* scale, const float* shift, const RangeStatistics& statistics,
                      float* y) {
  const float* stats = statistics.stats;
  for (int64_t c = 0; c < shape[1]; ++c) {
    FinishFixedStatistics(instruction, shape.elements() / shape[1], shape[1], c,
                          MomentsOf(shape, c, x), statistics);
    Normalise(instruction.grid.bits, shape, c, x,
              FixedChannelOf(stats[c], stats[shape[1] + c], scale[c], shift[c]), y);
  }
}

void FixedNormEval(const Instruction& instruction, const Shape& shape, const float* x,
                   const float* scale, const float* shift, const float* running_mean,
                   const float* running_var, float* y) {
  for (int64_t c = 0; c < shape[1]; ++c) {
    Normalise(instruction.grid.bits, shape, c, x,
              FixedChannelOfRunning(running_mean[c], running_var[c], scale[c], shift[c]), y);
  }
}

// dx = Q(scale) / s * (dy - mean dy - u * mean(dy * u)), s taken for the deviation.
void FixedNormInputGradient(const Instruction& instruction, const Shape& shape, const float* dy,
                            const float* x, const float* scale, const float* stats, float* dx,
                            float* dscale_dshift) {
  const int bits = instruction.grid.bits;
  const double count = static_cast<double>(shape.elements() / shape[1]);
  for (int64_t c = 0; c < shape[1]; ++c) {
    const double mean = stats[c], inverse = stats[shape[1] + c];
    double sum = 0, product = 0, fixed_product = 0;
    OverChannel(shape, c, [&](int64_t i) {
      const double u = (x[i] - mean) * inverse;
      sum += dy[i];
      product += dy[i] * u;
      fixed_product += dy[i] * FixedValue(u, bits);
    });
    const double factor = FixedValue(scale[c], kAffineBits) * inverse;
    OverChannel(shape, c, [&](int64_t i) {
      const double u = (x[i] - mean) * inverse;
      dx[i] = static_cast<float>(factor * (dy[i] - sum / count - u * (product / count)));
    });
    PutFixedGradients(sum, fixed_product, dscale_dshift[c], dscale_dshift[shape[1] + c]);
  }
}

}  // namespace runnel::host
