#pragma once

// Grids of a range, as kernels/ir/op_traits.inc says of the kAffine codes. Backends agree with it
// to the bit. Pure functions; any thread.

#include <cstdint>
#include <limits>

namespace runnel {

// Least and largest of some values. NaN is none of them.
struct ValueRange {
  float low = std::numeric_limits<float>::infinity();
  float high = -std::numeric_limits<float>::infinity();

  void Add(float x) {
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  // An empty one adds nothing.
  void Add(const ValueRange& other) {
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
  }
  // -0 as 0: which of both comes first must not decide.
  ValueRange Normal() const { return {low + 0.0f, high + 0.0f}; }
};

struct AffineGrid {
  float low = 0;
  float scale = 1;
  float top = 0;  // the largest code
};
inline AffineGrid AffineGridOf(const ValueRange& range, int bits) {
  constexpr float kLeastScale = 1e-8f;
  const auto top = static_cast<float>((1 << bits) - 1);
  const float scale = (range.high - range.low) / top;
  return {range.low, scale < kLeastScale ? kLeastScale : scale, top};
}

// The code of (x - low) / s = v: to the nearest, halves to even. Adding 2^23 rounds what is below
// it to an integer.
inline float AffineCode(float v, const AffineGrid& grid) {
  const float not_below = v < 0.0f ? 0.0f : v;
  const float clipped = not_below > grid.top ? grid.top : not_below;
  return (clipped + 0x1p23f) - 0x1p23f;
}
inline float AffineValue(float x, const AffineGrid& grid) {
  return AffineCode((x - grid.low) / grid.scale, grid) * grid.scale + grid.low;
}
// noise: in [-1/2, 1/2).
inline float NoisyAffineValue(float x, float noise, const AffineGrid& grid) {
  return AffineCode((x - grid.low) / grid.scale + noise, grid) * grid.scale + grid.low;
}
// draw: the 20 upper bits of a uniform word.
inline float AffineNoise(uint32_t draw) {
  return static_cast<float>(static_cast<int32_t>(draw)) * 0x1p-20f - 0.5f;
}

// The kept range `old` after a micro-batch of this range. Both 0: nothing was kept before.
inline bool IsSeen(const ValueRange& kept) { return kept.low != 0 || kept.high != 0; }
inline ValueRange NextKeptRange(const ValueRange& old, const ValueRange& now) {
  if (!IsSeen(old)) return now;
  return {0.9f * old.low + 0.1f * now.low, 0.9f * old.high + 0.1f * now.high};
}

}  // namespace runnel
