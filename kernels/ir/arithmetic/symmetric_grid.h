#pragma once

// Symmetric grids of 8 bits, as kernels/ir/op_traits.inc says of the kSymmetric codes and
// kClippedError. Backends agree with it to the bit. Pure functions; any thread.

#include <cmath>
#include <cstdint>

namespace runnel {

inline constexpr float kSymmetricTop = 127;

// max|x|; NaN is none of them.
float LargestMagnitude(const float* x, int64_t count);

inline float ClipTo(float x, float clip) { return x > clip ? clip : (x < -clip ? -clip : x); }
// The unit of a grid up to `clip`; 0: all values are 0.
inline float SymmetricUnit(float clip) { return clip / kSymmetricTop; }
inline float SymmetricValue(float x, float clip) {
  const float unit = SymmetricUnit(clip);
  if (unit == 0) return 0 * x;
  // Adding it rounds what is far below it to an integer.
  constexpr float kRounder = 0x1.8p23f;
  return ((ClipTo(x, clip) / unit + kRounder) - kRounder) * unit;
}
// floor(code + u) for u in [0, 1), without the sum's own rounding.
inline float NoisySymmetricValue(float x, float u, float clip) {
  const float unit = SymmetricUnit(clip);
  if (unit == 0) return 0 * x;
  const float code = ClipTo(x, clip) / unit, below = std::floor(code);
  return (code - below >= 1 - u ? below + 1 : below) * unit;
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

// max(e^(-20 d), 0.1).
float CounterDeviation(float deviation);

}  // namespace runnel
