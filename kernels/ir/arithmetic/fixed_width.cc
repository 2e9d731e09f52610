#include "kernels/ir/arithmetic/fixed_width.h"

#include <algorithm>
#include <cmath>

#include "kernels/ir/arithmetic/symmetric_grid.h"

namespace runnel {
namespace {

constexpr double kMostError = 0.03, kRate = 0.04, kInterval = 0.1, kShortened = 2, kWeight = 100;
constexpr int kStepBits = 8, kMostBits = 24, kExponentOfZeros = -12;
constexpr float kFirstMeasurements = 10, kLongestWait = 100;
constexpr float kMostCount = 1 << 24;  // floats count no further

double TopOf(int bits) { return std::ldexp(1.0, bits - 1) - 1; }

// Whether more than one value in a thousand does not fit.
bool Saturates(const float* x, int64_t count, int bits, int exponent) {
  const double inverse = std::ldexp(1.0, -exponent), top = TopOf(bits);
  int64_t beyond = 0;
  for (int64_t i = 0; i < count; ++i) beyond += std::abs(x[i] * inverse) > top ? 1 : 0;
  return beyond * 1000 > count;
}

float Counted(float count) { return std::min(count + 1, kMostCount); }

}  // namespace

int WidthExponent(float largest, int bits) {
  if (largest == 0) return kExponentOfZeros;
  int exponent = std::ilogb(largest) - bits + 1;
  while (std::ldexp(TopOf(bits), exponent) < largest) ++exponent;
  return exponent;
}

StepGrid StepsOfWidth(int bits, int exponent) {
  return {std::ldexp(1.0, -exponent), std::ldexp(1.0, exponent), TopOf(bits)};
}

double LogOfOnePlus(double x) {
  double halvings = 0;
  double value = 1 + x;
  for (; value >= 2; value /= 2) ++halvings;
  // 2 * artanh(z) / ln 2.
  const double z = (value - 1) / (value + 1);
  double sum = 0;
  for (int k = 39; k >= 1; k -= 2) sum = sum * z * z + 1.0 / k;
  return halvings + 2 * sum * z * 0x1.71547652b82fep0;
}

double WidthError(const float* x, int64_t count, int bits, int exponent) {
  const StepGrid grid = StepsOfWidth(bits, exponent);
  double sum = 0, grid_sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += std::abs(static_cast<double>(x[i]));
    grid_sum += std::abs(grid.CodeOf(x[i]));
  }
  return sum == 0 ? 0 : LogOfOnePlus(std::abs(sum - grid_sum * grid.down) / sum);
}

WidthState NextWidths(const WidthState& state, const float* x, int64_t count) {
  WidthState next = state;
  const auto count_width = [&next] {
    float& used = next.used[static_cast<int>(next.bits) / kStepBits - 1];
    used = Counted(used);
  };
  if (state.bits > 0 && state.wait >= 1 &&
      !Saturates(x, count, static_cast<int>(state.bits), static_cast<int>(state.exponent))) {
    next.wait = state.wait - 1;
    count_width();
    return next;
  }
  const float largest = LargestMagnitude(x, count);
  if (!std::isfinite(largest)) return state;
  int bits = kStepBits, exponent = WidthExponent(largest, bits);
  double error = WidthError(x, count, bits, exponent);
  double moving = state.moving + (state.bits > 0 ? state.bits - static_cast<float>(bits) : 0);
  while (error > kMostError && bits < kMostBits) {
    bits += kStepBits;
    exponent -= kStepBits;
    moving -= kStepBits;
    error = WidthError(x, count, bits, exponent);
  }
  const double away = std::abs(exponent - moving);
  const bool is_first = state.measured < kFirstMeasurements;
  next.bits = static_cast<float>(bits);
  next.exponent = static_cast<float>(exponent);
  next.error = static_cast<float>(error);
  next.moving = static_cast<float>(is_first ? exponent : moving + kRate * (exponent - moving));
  next.measured = Counted(state.measured);
  const double change = std::max(kRate * away, kWeight * error * error);
  const double interval =
      change == 0 ? kLongestWait : std::nearbyint(kInterval / change - kShortened);
  const double wait = is_first ? 1 : std::clamp<double>(interval, 1, kLongestWait);
  next.wait = static_cast<float>(wait - 1);
  count_width();
  return next;
}

}  // namespace runnel
