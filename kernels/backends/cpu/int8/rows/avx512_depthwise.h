#pragma once

// Depthwise rows with AVX-512 BW. Included by the files of instruction sets only; all static.

#include <immintrin.h>

#include <cstdint>

#include "kernels/backends/cpu/int8/rows/element_loops.h"

namespace runnel::cpu {

static constexpr int kVectorTaps = 64;  // more go the plain way

// Sixteen bytes as int32.
__attribute__((always_inline)) static inline __m512i WidenBytes(const int8_t* from,
                                                                __mmask16 mask) {
  return _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, from));
}

// The same with zero in the upper half of each int32: then vpmaddwd with any widened byte is one
// product, in one cheap instruction.
__attribute__((always_inline)) static inline __m512i WidenFactor(const int8_t* from,
                                                                 __mmask16 mask) {
  return _mm512_and_si512(WidenBytes(from, mask), _mm512_set1_epi32(0xFFFF));
}

static void Avx512DepthwiseRow(const int8_t* const* x, int64_t x_step, const int8_t* const* w,
                               int taps, int64_t pixels, int64_t channels, int32_t* acc,
                               int64_t acc_step, uint32_t* max_lanes) {
  if (taps > kVectorTaps) {
    DepthwiseRowLoop(x, x_step, w, taps, pixels, channels, acc, acc_step, max_lanes);
    return;
  }
  __m512i largest = _mm512_setzero_si512();
  __m512i factors[kVectorTaps];
  for (int64_t c = 0; c < channels; c += 16) {
    const auto mask =
        static_cast<__mmask16>(channels - c >= 16 ? 0xFFFF : (1 << (channels - c)) - 1);
    for (int t = 0; t < taps; ++t) factors[t] = WidenFactor(w[t] + c, mask);
    for (int64_t p = 0; p < pixels; ++p) {
      __m512i sum = _mm512_setzero_si512();
      for (int t = 0; t < taps; ++t) {
        const __m512i values = WidenBytes(x[t] + p * x_step + c, mask);
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(values, factors[t]));
      }
      _mm512_mask_storeu_epi32(acc + p * acc_step + c, mask, sum);
      largest = _mm512_max_epu32(largest, _mm512_abs_epi32(sum));
    }
  }
  if (max_lanes == nullptr) return;
  const __m512i so_far = _mm512_loadu_si512(max_lanes);
  _mm512_storeu_si512(max_lanes, _mm512_max_epu32(so_far, largest));
}

static void Avx512DepthwiseWeightRow(const int8_t* dy, int64_t dy_step, const int8_t* x,
                                     int64_t x_step, int64_t pixels, int64_t channels,
                                     int32_t* dw) {
  for (int64_t c = 0; c < channels; c += 16) {
    const auto mask =
        static_cast<__mmask16>(channels - c >= 16 ? 0xFFFF : (1 << (channels - c)) - 1);
    __m512i sum = _mm512_maskz_loadu_epi32(mask, dw + c);
    for (int64_t p = 0; p < pixels; ++p) {
      const __m512i factor = WidenFactor(dy + p * dy_step + c, mask);
      const __m512i values = WidenBytes(x + p * x_step + c, mask);
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(values, factor));
    }
    _mm512_mask_storeu_epi32(dw + c, mask, sum);
  }
}

}  // namespace runnel::cpu
