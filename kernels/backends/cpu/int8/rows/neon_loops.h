#pragma once

// Loops of the rows for arm64's Advanced SIMD: stores of a tile, rescaling and depthwise loops.
// Only instructions that every arm64 processor has. Static for the reason that packing_loops.h
// gives.

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstdint>

#include "kernels/backends/cpu/int8/int8_kernels.h"
#include "kernels/backends/cpu/int8/rows/element_loops.h"

namespace runnel::cpu {

// Adds what a tile starts from and writes row r of it: sums[q] are columns 4 q .. 4 q + 3. Returns
// the lanes of `largest` raised to the magnitudes.
template <int kQuads>
static inline uint32x4_t FinishTileRow(const Int8Tile& tile, int r, int32x4_t (&sums)[kQuads],
                                       uint32x4_t largest) {
  if (tile.columns == 4 * kQuads) {
    for (int q = 0; q < kQuads; ++q) {
      if (tile.start != nullptr) sums[q] = vaddq_s32(sums[q], vld1q_s32(tile.start + 4 * q));
      if (tile.addend != nullptr) sums[q] = vaddq_s32(sums[q], vld1q_s32(tile.addend[r] + 4 * q));
      vst1q_s32(tile.c[r] + 4 * q, sums[q]);
      largest = vmaxq_u32(largest, vreinterpretq_u32_s32(vabsq_s32(sums[q])));
    }
    return largest;
  }
  int32_t row[4 * kQuads];
  for (int q = 0; q < kQuads; ++q) vst1q_s32(row + 4 * q, sums[q]);
  uint32_t magnitude = 0;
  for (int j = 0; j < tile.columns; ++j) {
    auto sum = static_cast<uint32_t>(row[j]);
    if (tile.start != nullptr) sum += static_cast<uint32_t>(tile.start[j]);
    if (tile.addend != nullptr) sum += static_cast<uint32_t>(tile.addend[r][j]);
    tile.c[r][j] = static_cast<int32_t>(sum);
    const uint32_t size = Magnitude(tile.c[r][j]);
    magnitude = magnitude > size ? magnitude : size;
  }
  return vmaxq_u32(largest, vdupq_n_u32(magnitude));
}

static inline void RaiseMaxLanes(const Int8Tile& tile, uint32x4_t largest) {
  if (tile.max_lanes == nullptr) return;
  vst1q_u32(tile.max_lanes, vmaxq_u32(vld1q_u32(tile.max_lanes), largest));
}

// Row pointers of a full tile; a missing row reads another one's bytes and is not written.
template <int kRows>
struct RowPointers {
  explicit RowPointers(const Int8Tile& tile) {
    for (int r = 0; r < kRows; ++r) {
      p[r] = reinterpret_cast<const int8_t*>(tile.a[r < tile.rows ? r : 0]);
    }
  }
  const int8_t* p[kRows];
};

struct RoundPseudoStochastic {
  explicit RoundPseudoStochastic(int shift)
      : shift(vdupq_n_s32(-shift)),
        half(vdupq_n_s32(-(shift / 2))),
        odd(vdupq_n_s32(shift & 1)),
        rest_mask(vdupq_n_u32((1u << shift) - 1)),
        low_mask(vdupq_n_u32((1u << (shift / 2)) - 1)) {}
  uint32x4_t operator()(uint32x4_t x) const {
    const uint32x4_t rest = vandq_u32(x, rest_mask);
    const uint32x4_t high = vshlq_u32(rest, half);
    const uint32x4_t low = vshlq_u32(vandq_u32(rest, low_mask), odd);
    return vsubq_u32(vshlq_u32(x, shift), vcgtq_u32(high, low));
  }
  int32x4_t shift, half, odd;  // negative: to the right
  uint32x4_t rest_mask, low_mask;
};

struct RoundHalfAway {
  explicit RoundHalfAway(int shift)
      : shift(vdupq_n_s32(-shift)), half(vdupq_n_u32(shift == 0 ? 0 : 1u << (shift - 1))) {}
  uint32x4_t operator()(uint32x4_t x) const { return vshlq_u32(vaddq_u32(x, half), shift); }
  int32x4_t shift;
  uint32x4_t half;
};

// Four mantissas, with their signs.
template <typename Round>
static inline int16x4_t RescaleQuad(const int32_t* acc, const Round& round) {
  const int32x4_t value = vld1q_s32(acc);
  const uint32x4_t rounded = round(vreinterpretq_u32_s32(vabsq_s32(value)));
  const int32x4_t clipped = vreinterpretq_s32_u32(vminq_u32(rounded, vdupq_n_u32(127)));
  const int32x4_t sign = vshrq_n_s32(value, 31);
  return vmovn_s32(vsubq_s32(veorq_s32(clipped, sign), sign));
}

// Rescales the multiple of 16 elements in n; returns how many.
template <typename Round>
static inline int64_t RescaleBlocks(const int32_t* acc, int64_t n, const Round& round, bool relu,
                                    const int8_t* mask, int8_t* out) {
  const int8x16_t least = vdupq_n_s8(relu ? 0 : -127);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const int16x8_t low =
        vcombine_s16(RescaleQuad(acc + i, round), RescaleQuad(acc + i + 4, round));
    const int16x8_t high =
        vcombine_s16(RescaleQuad(acc + i + 8, round), RescaleQuad(acc + i + 12, round));
    int8x16_t y = vmaxq_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high)), least);
    if (mask != nullptr) {
      y = vandq_s8(y, vreinterpretq_s8_u8(vcgtq_s8(vld1q_s8(mask + i), vdupq_n_s8(0))));
    }
    vst1q_s8(out + i, y);
  }
  return i;
}

static inline void NeonRescalePseudoStochastic(const int32_t* acc, int64_t n, int shift, bool relu,
                                               const int8_t* mask, int8_t* out) {
  const int64_t done = RescaleBlocks(acc, n, RoundPseudoStochastic(shift), relu, mask, out);
  RescalePseudoStochasticFrom(done, acc, n, shift, relu, mask, out);
}

static inline void NeonRescaleHalfAway(const int32_t* acc, int64_t n, int shift, bool relu,
                                       const int8_t* mask, int8_t* out) {
  const int64_t done = RescaleBlocks(acc, n, RoundHalfAway(shift), relu, mask, out);
  RescaleHalfAwayFrom(done, acc, n, shift, relu, mask, out);
}

static inline uint32_t NeonMaxAbs(const int32_t* acc, int64_t n) {
  uint32x4_t even = vdupq_n_u32(0), odd = even;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    even = vmaxq_u32(even, vreinterpretq_u32_s32(vabsq_s32(vld1q_s32(acc + i))));
    odd = vmaxq_u32(odd, vreinterpretq_u32_s32(vabsq_s32(vld1q_s32(acc + i + 4))));
  }
  return MaxAbsFrom(i, acc, n, vmaxvq_u32(vmaxq_u32(even, odd)));
}

static inline void NeonSubtractSaturating(const int8_t* w, const int8_t* g, int64_t n,
                                          int8_t* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const int8x16_t difference = vqsubq_s8(vld1q_s8(w + i), vld1q_s8(g + i));
    vst1q_s8(out + i, vmaxq_s8(difference, vdupq_n_s8(-127)));
  }
  SubtractSaturatingFrom(i, w, g, n, out);
}

// Sums of 16 neighbouring channels, exact in int32.
struct ChannelSums {
  int32x4_t quad[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};

  // a * b and then c * d: two products of mantissas fit 16 bits, but not of kLowest (-128).
  template <bool kLowest>
  void AddTwo(int8x16_t a, int8x16_t b, int8x16_t c, int8x16_t d) {
    if constexpr (kLowest) {
      AddOne(a, b);
      return AddOne(c, d);
    }
    Add(vmlal_s8(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vget_low_s8(c), vget_low_s8(d)),
        vmlal_high_s8(vmull_high_s8(a, b), c, d));
  }
  void AddOne(int8x16_t a, int8x16_t b) {
    Add(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
  }

 private:
  void Add(int16x8_t low, int16x8_t high) {
    quad[0] = vaddw_s16(quad[0], vget_low_s16(low));
    quad[1] = vaddw_high_s16(quad[1], low);
    quad[2] = vaddw_s16(quad[2], vget_low_s16(high));
    quad[3] = vaddw_high_s16(quad[3], high);
  }
};

template <bool kLowest>
static inline void NeonDepthwiseRow(const int8_t* const* x, int64_t x_step, const int8_t* const* w,
                                    int taps, int64_t pixels, int64_t channels, int32_t* acc,
                                    int64_t acc_step, uint32_t* max_lanes) {
  uint32x4_t largest = vdupq_n_u32(0);
  const int64_t vectors = channels / 16 * 16;
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = 0; c < vectors; c += 16) {
      ChannelSums sums;
      const int64_t at = p * x_step + c;
      int t = 0;
      for (; t + 2 <= taps; t += 2) {
        sums.AddTwo<kLowest>(vld1q_s8(x[t] + at), vld1q_s8(w[t] + c), vld1q_s8(x[t + 1] + at),
                             vld1q_s8(w[t + 1] + c));
      }
      if (t < taps) sums.AddOne(vld1q_s8(x[t] + at), vld1q_s8(w[t] + c));
      for (int q = 0; q < 4; ++q) {
        vst1q_s32(acc + p * acc_step + c + 4 * q, sums.quad[q]);
        largest = vmaxq_u32(largest, vreinterpretq_u32_s32(vabsq_s32(sums.quad[q])));
      }
    }
    for (int64_t c = vectors; c < channels; ++c) {
      int32_t sum = 0;
      for (int t = 0; t < taps; ++t) sum += x[t][p * x_step + c] * w[t][c];
      acc[p * acc_step + c] = sum;
      largest = vmaxq_u32(largest, vdupq_n_u32(Magnitude(sum)));
    }
  }
  if (max_lanes != nullptr) vst1q_u32(max_lanes, vmaxq_u32(vld1q_u32(max_lanes), largest));
}

template <bool kLowest>
static inline void NeonDepthwiseWeightRow(const int8_t* dy, int64_t dy_step, const int8_t* x,
                                          int64_t x_step, int64_t pixels, int64_t channels,
                                          int32_t* dw) {
  const int64_t vectors = channels / 16 * 16;
  for (int64_t c = 0; c < vectors; c += 16) {
    ChannelSums sums;
    int64_t p = 0;
    for (; p + 2 <= pixels; p += 2) {
      sums.AddTwo<kLowest>(vld1q_s8(dy + p * dy_step + c), vld1q_s8(x + p * x_step + c),
                           vld1q_s8(dy + (p + 1) * dy_step + c),
                           vld1q_s8(x + (p + 1) * x_step + c));
    }
    if (p < pixels) sums.AddOne(vld1q_s8(dy + p * dy_step + c), vld1q_s8(x + p * x_step + c));
    for (int q = 0; q < 4; ++q) {
      vst1q_s32(dw + c + 4 * q, vaddq_s32(vld1q_s32(dw + c + 4 * q), sums.quad[q]));
    }
  }
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = vectors; c < channels; ++c) dw[c] += dy[p * dy_step + c] * x[p * x_step + c];
  }
}

}  // namespace runnel::cpu
#endif  // __aarch64__
