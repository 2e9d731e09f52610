#include "proto/base/training/codecs/gradient_noise.h"

#include <algorithm>

namespace runnel {

GradientSums& GradientSums::operator+=(const GradientSums& other) {
  micro_batches = other.micro_batches;
  mean_square += other.mean_square;
  deviation += other.deviation;
  error_mean_square += other.error_mean_square;
  error_deviation += other.error_deviation;
  return *this;
}

// Without bias: the mean of K has a K-th of the variance left.
GradientNoise NoiseOf(const GradientSums& sums, int64_t micro_batches_a_step, int64_t samples) {
  const auto k = static_cast<double>(sums.micro_batches);
  const double variance = sums.deviation / (k - 1);
  const double error_variance = sums.error_deviation / (k - 1);
  const double bias_square = std::max(0.0, sums.error_mean_square - error_variance / k);
  const double square = sums.mean_square - variance / k;
  GradientNoise noise;
  noise.added =
      (error_variance + static_cast<double>(micro_batches_a_step) * bias_square) / variance;
  if (square > 0) noise.scale_samples = static_cast<double>(samples) * variance / square;
  return noise;
}

}  // namespace runnel
