#pragma once

// Symmetric grids of 8 bits, as kernels/ir/op_traits.inc says of the kSymmetric codes and
// kClippedError. Backends agree with it to the bit. Pure functions; any thread.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/ir/arithmetic/affine_grid.h"

namespace runnel {

inline constexpr float kSymmetricTop = 127;

// max|x|; NaN is none of them.
float LargestMagnitude(const float* x, int64_t count);

inline float ClipTo(float x, float clip) { return x > clip ? clip : (x < -clip ? -clip : x); }
// The unit of a grid up to `clip`; 0: all values are 0.
inline float SymmetricUnit(float clip) { return clip / kSymmetricTop; }

// Of x / unit, as a float: -127..127, to the nearest. NaN has the least code.
inline float SymmetricCode(float v) {
  // Adding it rounds what is far below it to an integer.
  constexpr float kRounder = 0x1.8p23f;
  const float code = (v + kRounder) - kRounder;
  const float not_above = code > kSymmetricTop ? kSymmetricTop : code;
  return not_above >= -kSymmetricTop ? not_above : -kSymmetricTop;
}
// floor(v + u) for u in [0, 1), without the sum's own rounding.
inline float NoisySymmetricCode(float v, float u) {
  const float below = std::floor(v);
  const float code = v - below >= 1 - u ? below + 1 : below;
  const float not_above = code > kSymmetricTop ? kSymmetricTop : code;
  return not_above >= -kSymmetricTop ? not_above : -kSymmetricTop;
}

inline float SymmetricValue(float x, float clip) {
  const float unit = SymmetricUnit(clip), v = ClipTo(x, clip) / unit;
  if (unit == 0 || std::isnan(v)) return 0 * x;
  return SymmetricCode(v) * unit;
}
inline float NoisySymmetricValue(float x, float u, float clip) {
  const float unit = SymmetricUnit(clip), v = ClipTo(x, clip) / unit;
  if (unit == 0 || std::isnan(v)) return 0 * x;
  return NoisySymmetricCode(v, u) * unit;
}

// What values are clipped to before they get codes.
struct SymmetricBounds {
  float low = 0, high = 0;

  float clip() const { return std::max(std::abs(low), std::abs(high)); }
};
inline SymmetricBounds BoundsOfClip(float clip) { return {-clip, clip}; }
// `share` of the least and of the largest value; of no value: zeros.
inline SymmetricBounds ShareOfRange(const ValueRange& range, float share) {
  if (range.low > range.high) return {};
  return {share * range.low, share * range.high};
}
// x / unit for SymmetricCode.
inline float SymmetricQuotient(float x, const SymmetricBounds& bounds, float unit) {
  const float not_below = x < bounds.low ? bounds.low : x;
  return (not_below > bounds.high ? bounds.high : not_below) / (unit == 0 ? 1 : unit);
}

// 1 - cosine of the angle between g and its values on the grid, to the nearest; of every k-th
// element, so that there are at most 2^14. 0 for zeros.
double DeviationOf(const float* g, int64_t count, float clip);

struct ClipChoice {
  float clip = 0;
  float deviation = 0;
};
// The bound in [0.05, 1] max|g| with the least deviation: the best of 20, then a golden-section
// search between its neighbours.
ClipChoice ChooseClip(const float* g, int64_t count);
// The search looks at every SampleStride(count)-th element. Coprime with count, so that all columns,
// rows and channels of images are among them: a stride that the width divides would see one column.
int64_t SampleStride(int64_t count);
// Of these elements; `largest` is that of all.
ClipChoice ChooseClip(const float* sampled, int64_t count, float largest);

// max(e^(-20 d), 0.1).
float CounterDeviation(float deviation);

}  // namespace runnel
