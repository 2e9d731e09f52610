#pragma once

// Sums to codes with AVX-512. Included by the files of instruction sets only, after
// code_loops_body.inc and inside their namespace's rules: all static.

#include <immintrin.h>

#include <cstdint>

#include "kernels/backends/cpu/codes/code_loops.h"

namespace runnel::cpu {
namespace {

// What sixteen neighbouring columns need, even and odd lanes apart where products have 64 bits.
struct Sixteen {
  Sixteen(const CodeColumns& columns, int64_t c, __mmask16 inside)
      : offset(_mm512_maskz_loadu_epi32(inside, columns.offsets + c)),
        limit(_mm512_maskz_loadu_epi32(inside, columns.limits + c)),
        even(_mm512_maskz_loadu_epi32(inside, columns.multipliers + c)),
        odd(_mm512_srli_epi64(even, 32)) {
    const __m512i one = _mm512_set1_epi64(1);
    const __m512i shift = _mm512_mask_loadu_epi32(_mm512_set1_epi32(1), inside, columns.shifts + c);
    even_shift = _mm512_and_si512(shift, _mm512_set1_epi64(0xFFFFFFFF));
    odd_shift = _mm512_srli_epi64(shift, 32);
    even_half = _mm512_sllv_epi64(one, _mm512_sub_epi64(even_shift, one));
    odd_half = _mm512_sllv_epi64(one, _mm512_sub_epi64(odd_shift, one));
    weight_zero = columns.weight_zeros == nullptr
                      ? _mm512_setzero_si512()
                      : _mm512_maskz_loadu_epi32(inside, columns.weight_zeros + c);
  }

  __m512i Round(__m512i sum) const {
    const __m512i size = _mm512_min_epu32(_mm512_abs_epi32(sum), limit);
    __m512i left = _mm512_mul_epu32(size, even);
    __m512i right = _mm512_mul_epu32(_mm512_srli_epi64(size, 32), odd);
    left = _mm512_srlv_epi64(_mm512_add_epi64(left, even_half), even_shift);
    right = _mm512_srlv_epi64(_mm512_add_epi64(right, odd_half), odd_shift);
    const __m512i both = _mm512_mask_shuffle_epi32(left, 0xAAAA, right, _MM_PERM_CCAA);
    const __mmask16 negative = _mm512_movepi32_mask(sum);
    return _mm512_mask_sub_epi32(both, negative, _mm512_setzero_si512(), both);
  }

  __m512i offset, limit, even, odd, even_shift, odd_shift, even_half, odd_half, weight_zero;
};

// Columns [first, first + 64) of one row, and in integers those sums whose float is near a half: it
// differs from the product by 3 roundings, less than 10^-4 below 400, and beyond that each code is
// the clamp's.
template <bool kRowSums>
struct SixtyFour {
  SixtyFour(const CodeColumns& the_columns, int64_t the_first)
      : columns(the_columns), first(the_first) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      offset[v] = _mm512_loadu_si512(columns.offsets + first + 16 * v);
      scale[v] = _mm512_loadu_ps(columns.scales + first + 16 * v);
      if (kRowSums) weight_zero[v] = _mm512_loadu_si512(columns.weight_zeros + first + 16 * v);
    }
  }

  __m512i Codes(const int32_t* sums, int32_t row_sum) const {
    __m512i sum[4], code[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sum[v] = _mm512_add_epi32(_mm512_loadu_si512(sums + 16 * v), offset[v]);
      if (kRowSums) {
        const __m512i row = _mm512_set1_epi32(row_sum);
        sum[v] = _mm512_sub_epi32(sum[v], _mm512_mullo_epi32(weight_zero[v], row));
      }
    }
    Round(sum, code);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, Pack(code));
  }

  // Sums with their offsets, rounded.
  void Round(const __m512i (&sum)[4], __m512i (&code)[4]) const {
    constexpr float kNearHalf = 0.4999f;
    __mmask16 near[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512 real = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[v]), scale[v]);
      code[v] = _mm512_cvtps_epi32(real);
      const __m512 rest = _mm512_abs_ps(_mm512_reduce_ps(real, 0));
      near[v] = _mm512_cmp_ps_mask(rest, _mm512_set1_ps(kNearHalf), _CMP_GT_OQ);
    }
    if ((near[0] | near[1] | near[2] | near[3]) == 0) return;
    for (int v = 0; v < 4; ++v) {
      if (near[v] != 0) code[v] = Sixteen(columns, first + 16 * v, 0xFFFF).Round(sum[v]);
    }
  }

  // Codes as bytes, clamped; quarter q of the result is quarter q of code[0], ..., code[3].
  __m512i Pack(const __m512i (&code)[4]) const {
    const __m512i zero = _mm512_set1_epi16(static_cast<int16_t>(columns.zero));
    const __m512i left = _mm512_adds_epi16(_mm512_packs_epi32(code[0], code[1]), zero);
    const __m512i right = _mm512_adds_epi16(_mm512_packs_epi32(code[2], code[3]), zero);
    __m512i bytes = _mm512_packs_epi16(left, right);
    bytes = _mm512_max_epi8(bytes, _mm512_set1_epi8(static_cast<char>(columns.lowest)));
    return _mm512_min_epi8(bytes, _mm512_set1_epi8(static_cast<char>(columns.highest)));
  }

  const CodeColumns& columns;
  int64_t first;
  __m512i offset[4], weight_zero[4];
  __m512 scale[4];
};

template <bool kRowSums>
int64_t RequantizeBlocks(const CodeColumns& columns, const SumRows& rows) {
  int64_t i = 0;
  for (; i + 64 <= rows.count; i += 64) {
    const SixtyFour<kRowSums> block(columns, rows.first + i);
    for (int r = 0; r < rows.rows; ++r) {
      const int32_t row_sum = kRowSums ? rows.row_sums[r] : 0;
      _mm512_storeu_si512(rows.codes[r] + i, block.Codes(rows.sums[r] + i, row_sum));
    }
  }
  return i;
}

void Requantize(const CodeColumns& columns, const SumRows& rows) {
  int64_t i = 0;
  if (columns.scales != nullptr) {
    i = columns.weight_zeros == nullptr ? RequantizeBlocks<false>(columns, rows)
                                        : RequantizeBlocks<true>(columns, rows);
  }
  const __m512i zero = _mm512_set1_epi32(columns.zero);
  const __m512i lowest = _mm512_set1_epi32(columns.lowest);
  const __m512i highest = _mm512_set1_epi32(columns.highest);
  for (; i < rows.count; i += 16) {
    const int64_t left = rows.count - i;
    const auto inside = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    const Sixteen sixteen(columns, rows.first + i, inside);
    for (int r = 0; r < rows.rows; ++r) {
      __m512i sum = _mm512_maskz_loadu_epi32(inside, rows.sums[r] + i);
      sum = _mm512_add_epi32(sum, sixteen.offset);
      if (columns.weight_zeros != nullptr) {
        const __m512i row = _mm512_set1_epi32(rows.row_sums[r]);
        sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(sixteen.weight_zero, row));
      }
      __m512i code = _mm512_add_epi32(sixteen.Round(sum), zero);
      code = _mm512_min_epi32(_mm512_max_epi32(code, lowest), highest);
      _mm_mask_storeu_epi8(rows.codes[r] + i, inside, _mm512_cvtepi32_epi8(code));
    }
  }
}

}  // namespace
}  // namespace runnel::cpu
