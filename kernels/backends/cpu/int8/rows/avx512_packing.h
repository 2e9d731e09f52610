#pragma once

// Packing with AVX-512 BW for panels of 64 columns, tiles of 6 rows and 4 values a step. Included
// by the files of instruction sets only; all static.

#include <immintrin.h>

#include <cstdint>

#include "kernels/backends/cpu/int8/int8_kernels.h"

namespace runnel::cpu {

static constexpr int kAvx512Rows = 6;
static constexpr int kAvx512Columns = 64;
static constexpr int kAvx512Unit = 16;
static constexpr int kAvx512Group = 4;

#define RUNNEL_INLINE __attribute__((always_inline)) static inline

RUNNEL_INLINE __mmask64 FirstBytes(int64_t n) {
  return n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
}

template <uint8_t kBias>
static void Avx512CopyA(const int8_t* src, int64_t src_stride, int64_t rows, int64_t bytes,
                        uint8_t* dst, int64_t dst_stride) {
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(kBias));
  if (src_stride == bytes && dst_stride == bytes) {
    bytes *= rows;
    dst_stride = bytes;
    rows = 1;
  }
  for (int64_t r = 0; r < rows; ++r, src += src_stride, dst += dst_stride) {
    int64_t i = 0;
    for (; i + 64 <= bytes; i += 64) {
      _mm512_storeu_si512(dst + i, _mm512_xor_si512(_mm512_loadu_si512(src + i), bias));
    }
    for (; i < dst_stride; i += 64) {
      const int64_t left = bytes > i ? bytes - i : 0;
      const __m512i rest = _mm512_maskz_loadu_epi8(FirstBytes(left), src + i);
      _mm512_mask_storeu_epi8(dst + i, FirstBytes(dst_stride - i), _mm512_xor_si512(rest, bias));
    }
  }
}

// Four rows of 64 bytes -> out[v]: bytes 16 v .. 16 v + 15, those of the four rows side by side.
RUNNEL_INLINE void InterleaveRows(const __m512i row[4], __m512i out[4]) {
  // So that the unpacking within 128-bit lanes ends in ascending order.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) r[i] = _mm512_permutexvar_epi32(order, row[i]);
  const __m512i low01 = _mm512_unpacklo_epi8(r[0], r[1]);
  const __m512i high01 = _mm512_unpackhi_epi8(r[0], r[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(r[2], r[3]);
  const __m512i high23 = _mm512_unpackhi_epi8(r[2], r[3]);
  out[0] = _mm512_unpacklo_epi16(low01, low23);
  out[1] = _mm512_unpackhi_epi16(low01, low23);
  out[2] = _mm512_unpacklo_epi16(high01, high23);
  out[3] = _mm512_unpackhi_epi16(high01, high23);
}

// Rows k .. of the four are zero.
RUNNEL_INLINE void LoadFourRows(const int8_t* src, int64_t stride, int64_t k, __mmask64 mask,
                                __m512i row[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    row[i] = i < k ? _mm512_maskz_loadu_epi8(mask, src + i * stride) : _mm512_setzero_si512();
  }
}

static void Avx512PackBRows(const int8_t* src, int64_t row_stride, int64_t k, int n, int width,
                            int8_t* panel) {
  const __mmask64 mask = FirstBytes(n);
  const int vectors = width / kAvx512Unit;
  for (int64_t i = 0; i < k; i += 4, src += 4 * row_stride, panel += 4 * width) {
    __m512i row[4], out[4];
    LoadFourRows(src, row_stride, k - i, mask, row);
    InterleaveRows(row, out);
    _mm512_storeu_si512(panel, out[0]);
    if (vectors > 1) _mm512_storeu_si512(panel + 64, out[1]);
    if (vectors > 2) _mm512_storeu_si512(panel + 128, out[2]);
    if (vectors > 3) _mm512_storeu_si512(panel + 192, out[3]);
  }
}

// 48 channels of one step: eight rows of panels of 24 bytes. `panels` of them are written.
RUNNEL_INLINE void StoreSixes(const __m512i q[4], int64_t panels, uint8_t* dst, int64_t stride) {
  const __m512i piece[8] = {q[0],
                            _mm512_alignr_epi64(q[0], q[0], 3),
                            _mm512_alignr_epi64(q[1], q[0], 6),
                            _mm512_alignr_epi64(q[1], q[1], 1),
                            _mm512_alignr_epi64(q[1], q[1], 4),
                            _mm512_alignr_epi64(q[2], q[1], 7),
                            _mm512_alignr_epi64(q[2], q[2], 2),
                            _mm512_alignr_epi64(q[2], q[2], 5)};
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    if (i >= panels) break;
    _mm256_mask_storeu_epi64(dst + i * stride, 7, _mm512_castsi512_si256(piece[i]));
  }
}

template <uint8_t kBias>
static void Avx512PackA(const int8_t* src, int64_t src_stride, int64_t k, int64_t n, uint8_t* dst,
                        int64_t panel_stride) {
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(kBias));
  for (int64_t i = 0; i < k; i += 4, src += 4 * src_stride, dst += 24) {
    uint8_t* to = dst;
    for (int64_t c = 0; c < n; c += 48, to += 8 * panel_stride) {
      const int64_t left = n - c < 48 ? n - c : 48;
      __m512i row[4], out[4];
      LoadFourRows(src + c, src_stride, k - i, FirstBytes(left), row);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) row[r] = _mm512_xor_si512(row[r], bias);
      InterleaveRows(row, out);
      StoreSixes(out, (left + 5) / 6, to, panel_stride);
    }
  }
}

// Four steps of 16 columns: 16 bytes of each column, of which `bytes` exist, for `n` columns.
template <bool kFull>
RUNNEL_INLINE void PackSixteenColumns(const int8_t* src, int64_t stride, int64_t bytes, int n,
                                      int width, int8_t* panel) {
  __m512i x[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    // Lane l has column 4 l + i: the 4x4 transposition within lanes then ends in order.
    __m128i lane[4];
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) {
      const int column = 4 * l + i;
      if (kFull) {
        lane[l] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + column * stride));
      } else {
        lane[l] = column < n ? _mm_maskz_loadu_epi8(static_cast<__mmask16>(FirstBytes(bytes)),
                                                    src + column * stride)
                             : _mm_setzero_si128();
      }
    }
    x[i] = _mm512_inserti32x4(_mm512_castsi128_si512(lane[0]), lane[1], 1);
    x[i] = _mm512_inserti32x4(x[i], lane[2], 2);
    x[i] = _mm512_inserti32x4(x[i], lane[3], 3);
  }
  const __m512i low01 = _mm512_unpacklo_epi32(x[0], x[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(x[0], x[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(x[2], x[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(x[2], x[3]);
  const __m512i step[4] = {_mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
                           _mm512_unpacklo_epi64(high01, high23),
                           _mm512_unpackhi_epi64(high01, high23)};
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s) {
    if (kFull || 4 * s < bytes) _mm512_storeu_si512(panel + int64_t{s} * 4 * width, step[s]);
  }
}

// Bytes ahead in its column that a line is asked for before it is packed.
static constexpr int64_t kAhead = 256;

// Sixteen steps of 16 columns, all of which exist: a 16x16 transposition of four bytes each.
RUNNEL_INLINE void PackSixteenSteps(const int8_t* src, int64_t stride, int width, int8_t* panel) {
  __m512i pairs[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    const __m512i a = _mm512_loadu_si512(src + i * stride);
    const __m512i b = _mm512_loadu_si512(src + (i + 1) * stride);
    _mm_prefetch(src + i * stride + kAhead, _MM_HINT_T0);
    _mm_prefetch(src + (i + 1) * stride + kAhead, _MM_HINT_T0);
    pairs[i] = _mm512_unpacklo_epi32(a, b);
    pairs[i + 1] = _mm512_unpackhi_epi32(a, b);
  }
  // fours[4 g + j], 128-bit lane l: columns 4 g .. 4 g + 3 of step 4 l + j.
  __m512i fours[16];
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    fours[g] = _mm512_unpacklo_epi64(pairs[g], pairs[g + 2]);
    fours[g + 1] = _mm512_unpackhi_epi64(pairs[g], pairs[g + 2]);
    fours[g + 2] = _mm512_unpacklo_epi64(pairs[g + 1], pairs[g + 3]);
    fours[g + 3] = _mm512_unpackhi_epi64(pairs[g + 1], pairs[g + 3]);
  }
  const int64_t step = int64_t{4} * width;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0xEE);
    const __m512i low23 = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0xEE);
    int8_t* to = panel + j * step;
    _mm512_storeu_si512(to, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(to + 4 * step, _mm512_shuffle_i32x4(low01, low23, 0xDD));
    _mm512_storeu_si512(to + 8 * step, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(to + 12 * step, _mm512_shuffle_i32x4(high01, high23, 0xDD));
  }
}

static void Avx512PackBColumns(const int8_t* src, int64_t column_stride, int64_t k, int n,
                               int width, int8_t* panel) {
  // Sixteen columns at a time: as many streams as the hardware follows.
  for (int j = 0; j < width; j += 16, src += 16 * column_stride, panel += 64) {
    const int left = n - j;
    int64_t i = 0;
    if (left >= 16) {
      for (; i + 64 <= k; i += 64) {
        PackSixteenSteps(src + i, column_stride, width, panel + i * width);
      }
      for (; i + 16 <= k; i += 16) {
        PackSixteenColumns<true>(src + i, column_stride, 16, 16, width, panel + i * width);
      }
    }
    for (; i < k; i += 16) {
      PackSixteenColumns<false>(src + i, column_stride, k - i < 16 ? k - i : 16, left, width,
                                panel + i * width);
    }
  }
}

}  // namespace runnel::cpu
