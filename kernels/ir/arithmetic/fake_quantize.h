#pragma once

// Fake quantisation of single values, as kernels/ir/program.h says of the kFakeQuantize codes.
// Backends agree with it to the bit, but for kTanhMax, where tanh may be rounded differently. Pure
// functions; any thread.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace runnel {

// N: a grid of `bits` bits has the codes 0..N.
constexpr int GridSteps(int bits) { return (1 << bits) - 1; }

// c / N of an activation. The product is rounded to float before it is rounded to an integer.
inline float GridActivation(float x, int steps) {
  const float scaled = x * static_cast<float>(steps);
  if (std::isnan(scaled)) return scaled;
  const float clipped = std::clamp(scaled, 0.0f, static_cast<float>(steps));
  return std::nearbyint(clipped + 0.0f) * (1.0f / static_cast<float>(steps));
}

// The code of a weight with tanh(w) = t, where T is the largest |tanh|; the middle where T is 0.
inline double TanhCode(double t, double largest, int steps) {
  return std::nearbyint(steps * (largest == 0 ? 0.5 : t / (2 * largest) + 0.5));
}
// 2 * c / N - 1.
inline float WeightOfCode(double code, int steps) {
  return static_cast<float>(2 * code - steps) * (1.0f / static_cast<float>(steps));
}

// The grid of a sample's errors.
struct ErrorGrid {
  float scale = 0;  // N * 2^19 / m: dy * scale has 20 bits behind the code's point
  float step = 0;   // m / N
  int steps = 0;
  // False: the sample stays as it is. Below 1e-30, far under any gradient that moves a weight,
  // scale would overflow.
  bool used = false;
};
inline ErrorGrid ErrorGridOf(float max_abs, int bits) {
  const int steps = GridSteps(bits);
  const bool used = max_abs >= 1e-30f && std::isfinite(max_abs);
  if (!used) return {};
  const float numerator = static_cast<float>(steps) * 0x1p19f;
  return {numerator / max_abs, max_abs / static_cast<float>(steps), steps, true};
}
// c; `draw` are the 20 upper bits of a uniform word. Exact integers from the first product on.
inline int ErrorCode(float dy, const ErrorGrid& grid, uint32_t draw) {
  const auto point = static_cast<int32_t>(dy * grid.scale);
  const int32_t code = (point + (grid.steps << 19) + static_cast<int32_t>(draw)) >> 20;
  return std::clamp(code, 0, grid.steps);
}
inline float ErrorOfCode(int code, const ErrorGrid& grid) {
  return static_cast<float>(2 * code - grid.steps) * grid.step;
}

}  // namespace runnel
