#pragma once

// Packing for arm64's rows, whose tiles are as wide as high: rows of A and columns of B are packed
// alike. In an anonymous namespace for the reason that packing_loops.h gives.

#include <cstdint>

#include "kernels/backends/cpu/int8/rows/packing_loops.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace runnel::cpu {
namespace {

// The three functions below turn `group` rows of `side` bytes into [side][group].

// side 8, group 4.
inline void TurnByFour(const int8_t* from, int64_t stride, int8_t* to) {
  vst4_s8(to, {vld1_s8(from), vld1_s8(from + stride), vld1_s8(from + 2 * stride),
               vld1_s8(from + 3 * stride)});
}

// Rows 2 i and 2 i + 1 of eight, as pairs of bytes.
inline int16x4x2_t PairRows(const int8_t* from, int64_t stride, int i) {
  const int8x8x2_t pairs =
      vtrn_s8(vld1_s8(from + 2 * i * stride), vld1_s8(from + (2 * i + 1) * stride));
  return {vreinterpret_s16_s8(pairs.val[0]), vreinterpret_s16_s8(pairs.val[1])};
}

// side 8, group 8.
inline void TurnByEight(const int8_t* from, int64_t stride, int8_t* to) {
  const int16x4x2_t a = PairRows(from, stride, 0), b = PairRows(from, stride, 1);
  const int16x4x2_t c = PairRows(from, stride, 2), d = PairRows(from, stride, 3);
  // half[p][h]: columns p, p + 2, p + 4, p + 6 of the upper (h = 0) or lower four rows, in pairs.
  const int16x4x2_t half[2][2] = {{vtrn_s16(a.val[0], b.val[0]), vtrn_s16(c.val[0], d.val[0])},
                                  {vtrn_s16(a.val[1], b.val[1]), vtrn_s16(c.val[1], d.val[1])}};
  for (int column = 0; column < 4; ++column) {
    const auto& [upper, lower] = half[column % 2];
    const int32x2x2_t both = vtrn_s32(vreinterpret_s32_s16(upper.val[column / 2]),
                                      vreinterpret_s32_s16(lower.val[column / 2]));
    vst1_s8(to + 8 * column, vreinterpret_s8_s32(both.val[0]));
    vst1_s8(to + 8 * (column + 4), vreinterpret_s8_s32(both.val[1]));
  }
}

// Four rows of four bytes, turned.
inline int32x4_t TurnFourByFour(const int8_t* from, int64_t stride) {
  int32_t rows[4];
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&rows[i], from + i * stride, 4);
  static constexpr uint8_t kOrder[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  return vreinterpretq_s32_s8(vqtbl1q_s8(vreinterpretq_s8_s32(vld1q_s32(rows)), vld1q_u8(kOrder)));
}

// side 4, group 16.
inline void TurnBySixteen(const int8_t* from, int64_t stride, int8_t* to) {
  int32_t words[16];
  vst4q_s32(words, {TurnFourByFour(from, stride), TurnFourByFour(from + 4 * stride, stride),
                    TurnFourByFour(from + 8 * stride, stride),
                    TurnFourByFour(from + 12 * stride, stride)});
  __builtin_memcpy(to, words, sizeof(words));
}

template <int kSide, int kGroup, void (*kTurn)(const int8_t*, int64_t, int8_t*)>
struct NeonPacking : PackingLoops<kSide, kGroup, 0> {
  using Loops = PackingLoops<kSide, kGroup, 0>;

  static void PackA(const int8_t* src, int64_t src_stride, int64_t k, int64_t n, uint8_t* dst,
                    int64_t panel_stride) {
    for (int64_t first = 0; first < n; first += kSide, dst += panel_stride) {
      const auto rows = static_cast<int>(n - first < kSide ? n - first : kSide);
      PackBRows(src + first, src_stride, k, rows, kSide, reinterpret_cast<int8_t*>(dst));
    }
  }

  static void PackBRows(const int8_t* src, int64_t row_stride, int64_t k, int n, int width,
                        int8_t* panel) {
    int64_t i = 0;
    if (n == kSide) {
      for (; i + kGroup <= k; i += kGroup, panel += kSide * kGroup) {
        kTurn(src + i * row_stride, row_stride, panel);
      }
    }
    if (i < k) Loops::PackBRows(src + i * row_stride, row_stride, k - i, n, width, panel);
  }
};

}  // namespace
}  // namespace runnel::cpu
#endif  // __aarch64__
