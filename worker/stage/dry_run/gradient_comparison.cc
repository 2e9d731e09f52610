#include "worker/stage/dry_run/gradient_comparison.h"

#include <cstddef>

namespace runnel {
namespace {

double Square(absl::Span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace

void GradientComparison::AddExact(absl::Span<const float> gradient) {
  exact_.assign(gradient.begin(), gradient.end());
  total_.resize(gradient.size());
  error_total_.resize(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) total_[i] += gradient[i];
  sums_.deviation += Square(gradient);
  ++sums_.micro_batches;
}

void GradientComparison::AddCoded(absl::Span<const float> gradient) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    exact_[i] = gradient[i] - exact_[i];
    error_total_[i] += exact_[i];
  }
  sums_.error_deviation += Square(exact_);
}

GradientSums GradientComparison::sums() const {
  GradientSums sums = sums_;
  if (sums.micro_batches == 0) return sums;
  const auto k = static_cast<double>(sums.micro_batches);
  sums.mean_square = Square(total_) / (k * k);
  sums.deviation -= k * sums.mean_square;
  sums.error_mean_square = Square(error_total_) / (k * k);
  sums.error_deviation -= k * sums.error_mean_square;
  return sums;
}

}  // namespace runnel
