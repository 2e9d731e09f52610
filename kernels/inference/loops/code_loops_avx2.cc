#include <immintrin.h>

#include "kernels/inference/loops/code_loops.h"

namespace runnel::inference {
namespace {

constexpr int kVectorBytes = 32;
void Requantize(const CodeColumns& columns, const SumRows& rows);
#include "kernels/inference/loops/code_loops_body.inc"

__m256i Load(const int32_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// What eight neighbouring columns need, even and odd lanes apart where products have 64 bits.
struct Eight {
  Eight(const CodeColumns& columns, int64_t c)
      : offset(Load(columns.offsets + c)),
        limit(Load(columns.limits + c)),
        even(Load(columns.multipliers + c)),
        odd(_mm256_srli_epi64(even, 32)) {
    const __m256i shift = Load(columns.shifts + c), one = _mm256_set1_epi64x(1);
    const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
    even_shift = _mm256_and_si256(shift, low);
    odd_shift = _mm256_srli_epi64(shift, 32);
    even_half = _mm256_sllv_epi64(one, _mm256_sub_epi64(even_shift, one));
    odd_half = _mm256_sllv_epi64(one, _mm256_sub_epi64(odd_shift, one));
    weight_zero =
        columns.weight_zeros == nullptr ? _mm256_setzero_si256() : Load(columns.weight_zeros + c);
  }

  __m256i Round(__m256i sum) const {
    const __m256i size = _mm256_min_epu32(_mm256_abs_epi32(sum), limit);
    __m256i left = _mm256_mul_epu32(size, even);
    __m256i right = _mm256_mul_epu32(_mm256_srli_epi64(size, 32), odd);
    left = _mm256_srlv_epi64(_mm256_add_epi64(left, even_half), even_shift);
    right = _mm256_srlv_epi64(_mm256_add_epi64(right, odd_half), odd_shift);
    const __m256i both = _mm256_blend_epi32(left, _mm256_slli_epi64(right, 32), 0xAA);
    return _mm256_sign_epi32(both, sum);
  }

  __m256i offset, limit, even, odd, even_shift, odd_shift, even_half, odd_half, weight_zero;
};

void Requantize(const CodeColumns& columns, const SumRows& rows) {
  const __m256i zero = _mm256_set1_epi32(columns.zero);
  const __m256i lowest = _mm256_set1_epi32(columns.lowest);
  const __m256i highest = _mm256_set1_epi32(columns.highest);
  int64_t i = 0;
  for (; i + 8 <= rows.count; i += 8) {
    const Eight eight(columns, rows.first + i);
    for (int r = 0; r < rows.rows; ++r) {
      __m256i sum = _mm256_add_epi32(Load(rows.sums[r] + i), eight.offset);
      if (columns.weight_zeros != nullptr) {
        const __m256i row = _mm256_set1_epi32(rows.row_sums[r]);
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(eight.weight_zero, row));
      }
      __m256i code = _mm256_add_epi32(eight.Round(sum), zero);
      code = _mm256_min_epi32(_mm256_max_epi32(code, lowest), highest);
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(rows.codes[r] + i),
                       _mm_packs_epi16(words, words));
    }
  }
  RequantizeFrom(i, columns, rows);
}

}  // namespace

extern const CodeLoops kAvx2CodeLoops;
const CodeLoops kAvx2CodeLoops = MakeLoops("avx2");

}  // namespace runnel::inference
