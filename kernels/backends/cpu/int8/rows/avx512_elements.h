#pragma once

// Element-wise loops with AVX-512 BW. Included by the files of instruction sets only; all static.

#include <immintrin.h>

#include <cstdint>

#include "kernels/backends/cpu/int8/rows/element_loops.h"

namespace runnel::cpu {

// Counts of the two shifts as the instructions want them.
struct Avx512Shift {
  explicit Avx512Shift(int shift)
      : all(_mm_cvtsi32_si128(shift)),
        half(_mm_cvtsi32_si128(shift / 2)),
        odd(_mm_cvtsi32_si128(shift & 1)),
        rest_mask(_mm512_set1_epi32(static_cast<int>((1u << shift) - 1))),
        low_mask(_mm512_set1_epi32(static_cast<int>((1u << (shift / 2)) - 1))),
        nearest(_mm512_set1_epi32(shift == 0 ? 0 : static_cast<int>(1u << (shift - 1)))) {}

  __m128i all, half, odd;
  __m512i rest_mask, low_mask, nearest;
};

template <bool kPseudoStochastic>
__attribute__((always_inline)) static inline __m512i RoundMagnitude(__m512i x,
                                                                    const Avx512Shift& shift) {
  if (!kPseudoStochastic) return _mm512_srl_epi32(_mm512_add_epi32(x, shift.nearest), shift.all);
  const __m512i quotient = _mm512_srl_epi32(x, shift.all);
  const __m512i high = _mm512_srl_epi32(_mm512_and_si512(x, shift.rest_mask), shift.half);
  const __m512i low = _mm512_sll_epi32(_mm512_and_si512(x, shift.low_mask), shift.odd);
  const __mmask16 up = _mm512_cmpgt_epu32_mask(high, low);
  return _mm512_mask_sub_epi32(quotient, up, quotient, _mm512_set1_epi32(-1));
}

template <bool kPseudoStochastic>
static int64_t Avx512Rescale(const int32_t* acc, int64_t n, int shift_bits, bool relu,
                             const int8_t* mask, int8_t* out) {
  const Avx512Shift shift(shift_bits);
  const __m512i zero = _mm512_setzero_si512(), most = _mm512_set1_epi32(127);
  const __mmask16 keep_negative = relu ? 0 : 0xFFFF;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i x = _mm512_loadu_si512(acc + i);
    __m512i y = RoundMagnitude<kPseudoStochastic>(_mm512_abs_epi32(x), shift);
    y = _mm512_min_epu32(y, most);
    const __mmask16 negative = _mm512_movepi32_mask(x);
    y = _mm512_mask_sub_epi32(y, negative, zero, y);
    __mmask16 keep = static_cast<__mmask16>(~negative | keep_negative);
    if (mask != nullptr) {
      const __m128i m = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask + i));
      keep = static_cast<__mmask16>(keep & _mm_cmpgt_epi8_mask(m, _mm_setzero_si128()));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm512_maskz_cvtepi32_epi8(keep, y));
  }
  return i;
}

// The end of a tile whose sums are rounded in the registers.
template <bool kPseudoStochastic, int kRows, int kVectors>
__attribute__((always_inline)) static inline void Avx512RoundTile(
    const Int8Tile& tile, __m512i (&sums)[kRows][kVectors]) {
  const Avx512Shift shift(tile.rounding->shift);
  const __m512i zero = _mm512_setzero_si512(), clip = _mm512_set1_epi32(127);
  const __mmask16 keep_negative = tile.rounding->relu ? 0 : 0xFFFF;
  const int last = tile.columns - 16 * (kVectors - 1);
  const auto tail = static_cast<__mmask16>((1u << last) - 1);
  __m512i largest = zero;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 inside = v == kVectors - 1 ? tail : __mmask16{0xFFFF};
      __m512i x = sums[r][v];
      if (tile.addend != nullptr) {
        x = _mm512_add_epi32(x, _mm512_maskz_loadu_epi32(inside, tile.addend[r] + 16 * v));
      }
      const __m512i magnitude = _mm512_maskz_abs_epi32(inside, x);
      largest = _mm512_max_epu32(largest, magnitude);
      __m512i y = _mm512_min_epu32(RoundMagnitude<kPseudoStochastic>(magnitude, shift), clip);
      const __mmask16 negative = _mm512_movepi32_mask(x);
      y = _mm512_mask_sub_epi32(y, negative, zero, y);
      auto keep = static_cast<__mmask16>(~negative | keep_negative);
      if (tile.mask != nullptr) {
        const __m128i m = _mm_maskz_loadu_epi8(inside, tile.mask[r] + 16 * v);
        keep = static_cast<__mmask16>(keep & _mm_cmpgt_epi8_mask(m, _mm_setzero_si128()));
      }
      const __m128i bytes = _mm512_maskz_cvtepi32_epi8(keep, y);
      auto* to = reinterpret_cast<__m128i*>(tile.y[r] + 16 * v);
      if (v < kVectors - 1 || last == 16) {
        _mm_storeu_si128(to, bytes);
      } else {
        _mm_mask_storeu_epi8(to, inside, bytes);
      }
      sums[r][v] = magnitude;
    }
  }
  const __m512i so_far = _mm512_loadu_si512(tile.max_lanes);
  _mm512_storeu_si512(tile.max_lanes, _mm512_max_epu32(so_far, largest));
  const __m512i most = _mm512_set1_epi32(static_cast<int>(128u << tile.rounding->shift));
  if (_mm512_cmpgt_epu32_mask(largest, most) == 0) return;
  for (const auto& row : sums) {
    for (const __m512i& magnitude : row)
      *tile.saturated += __builtin_popcount(_mm512_cmpgt_epu32_mask(magnitude, most));
  }
}

static void Avx512RescalePseudoStochastic(const int32_t* acc, int64_t n, int shift, bool relu,
                                          const int8_t* mask, int8_t* out) {
  const int64_t done = Avx512Rescale<true>(acc, n, shift, relu, mask, out);
  RescalePseudoStochasticFrom(done, acc, n, shift, relu, mask, out);
}

static void Avx512RescaleHalfAway(const int32_t* acc, int64_t n, int shift, bool relu,
                                  const int8_t* mask, int8_t* out) {
  const int64_t done = Avx512Rescale<false>(acc, n, shift, relu, mask, out);
  RescaleHalfAwayFrom(done, acc, n, shift, relu, mask, out);
}

static uint32_t Avx512MaxAbs(const int32_t* acc, int64_t n) {
  __m512i largest[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int v = 0; v < 2; ++v) {
      const __m512i x = _mm512_loadu_si512(acc + i + 16 * v);
      largest[v] = _mm512_max_epu32(largest[v], _mm512_abs_epi32(x));
    }
  }
  return MaxAbsFrom(i, acc, n, _mm512_reduce_max_epu32(_mm512_max_epu32(largest[0], largest[1])));
}

static void Avx512SubtractSaturating(const int8_t* w, const int8_t* g, int64_t n, int8_t* out) {
  const __m512i least = _mm512_set1_epi8(-127);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i difference =
        _mm512_subs_epi8(_mm512_loadu_si512(w + i), _mm512_loadu_si512(g + i));
    _mm512_storeu_si512(out + i, _mm512_max_epi8(difference, least));
  }
  SubtractSaturatingFrom(i, w, g, n, out);
}

}  // namespace runnel::cpu
