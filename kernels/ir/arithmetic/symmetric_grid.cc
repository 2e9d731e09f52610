#include "kernels/ir/arithmetic/symmetric_grid.h"

#include <algorithm>
#include <numeric>

namespace runnel {
namespace {

constexpr int64_t kSampled = 1 << 14;
constexpr int kCoarse = 20;
constexpr double kLeastShare = 1.0 / kCoarse;  // of max|g|
constexpr int kNarrowings = 10;
constexpr double kGolden = 0.6180339887498949;

}  // namespace

float LargestMagnitude(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

int64_t SampleStride(int64_t count) {
  int64_t stride = (count + kSampled - 1) / kSampled;
  while (std::gcd(stride, count) != 1) ++stride;
  return stride;
}

double DeviationOf(const float* g, int64_t count, float clip) {
  const int64_t stride = SampleStride(count);
  double product = 0, squares = 0, grid_squares = 0;
  for (int64_t i = 0; i < count; i += stride) {
    const double x = g[i], y = SymmetricValue(g[i], clip);
    product += x * y;
    squares += x * x;
    grid_squares += y * y;
  }
  if (squares == 0) return 0;
  if (grid_squares == 0) return 1;
  return std::max(0.0, 1 - product / std::sqrt(squares * grid_squares));
}

ClipChoice ChooseClip(const float* g, int64_t count) {
  return ChooseClip(g, count, LargestMagnitude(g, count));
}

ClipChoice ChooseClip(const float* g, int64_t count, float largest) {
  if (largest == 0 || !std::isfinite(largest)) return {largest, 0};
  double best_share = 1, best = DeviationOf(g, count, largest);
  const auto try_share = [&](double share) {
    const double deviation = DeviationOf(g, count, static_cast<float>(share * largest));
    if (deviation < best) {
      best = deviation;
      best_share = share;
    }
    return deviation;
  };
  for (int i = kCoarse - 1; i >= 1; --i) try_share(static_cast<double>(i) / kCoarse);
  double low = std::max(kLeastShare, best_share - kLeastShare);
  double high = std::min(1.0, best_share + kLeastShare);
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double at_a = try_share(a), at_b = try_share(b);
  for (int i = 0; i < kNarrowings; ++i) {
    if (at_a < at_b) {
      high = b;
      b = a;
      at_b = at_a;
      at_a = try_share(a = high - kGolden * (high - low));
    } else {
      low = a;
      a = b;
      at_a = at_b;
      at_b = try_share(b = low + kGolden * (high - low));
    }
  }
  return {static_cast<float>(best_share * largest), static_cast<float>(best)};
}

float CounterDeviation(float deviation) {
  return static_cast<float>(std::max(std::exp(-20.0 * deviation), 0.1));
}

}  // namespace runnel
