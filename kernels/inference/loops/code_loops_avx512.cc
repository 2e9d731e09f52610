#include <immintrin.h>

#include "kernels/inference/loops/code_loops.h"

namespace runnel::inference {
namespace {

constexpr int kVectorBytes = 64;
void Requantize(const CodeColumns& columns, const SumRows& rows);
#include "kernels/inference/loops/code_loops_body.inc"

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

void Requantize(const CodeColumns& columns, const SumRows& rows) {
  const __m512i zero = _mm512_set1_epi32(columns.zero);
  const __m512i lowest = _mm512_set1_epi32(columns.lowest);
  const __m512i highest = _mm512_set1_epi32(columns.highest);
  for (int64_t i = 0; i < rows.count; i += 16) {
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
      _mm512_mask_cvtepi32_storeu_epi8(rows.codes[r] + i, inside, code);
    }
  }
}

}  // namespace

extern const CodeLoops kAvx512CodeLoops;
const CodeLoops kAvx512CodeLoops = MakeLoops("avx512");

}  // namespace runnel::inference
