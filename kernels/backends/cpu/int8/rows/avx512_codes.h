#pragma once

// The end of a tile whose sums become codes in the registers, with AVX-512 BW and VNNI. Included by
// the files of instruction sets only; all static.

#include <immintrin.h>

#include <cstdint>

#include "kernels/backends/cpu/int8/rows/avx512_packing.h"

namespace runnel::cpu {
namespace {

// Sixty-four codes of a row as words: columns 0 to 31 and 32 to 63.
struct Avx512Words {
  __m512i low, high;
};

class Avx512Coder {
 public:
  explicit Avx512Coder(const Int8TileCoding& coding)
      : coding_(coding),
        whole_(_mm512_set1_ps(kWhole + static_cast<float>(coding.zero))),
        lowest_(_mm512_set1_epi8(static_cast<char>(coding.lowest))),
        highest_(_mm512_set1_epi8(static_cast<char>(coding.highest))) {}

  // Codes before the clamp: the low half of each float beyond 2^23, whose last bit is a unit.
  template <int kVectors>
  __attribute__((always_inline)) Avx512Words Words(const __m512i (&sums)[kVectors]) const {
    __m512i codes[4] = {};
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scale = _mm512_loadu_ps(coding_.scales + 16 * v);
      codes[v] = _mm512_castps_si512(_mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[v]), scale, whole_));
    }
    const __m512i even = _mm512_loadu_si512(kEvenWords);
    return {_mm512_permutex2var_epi16(codes[0], even, codes[1]),
            kVectors <= 2 ? codes[2] : _mm512_permutex2var_epi16(codes[2], even, codes[3])};
  }

  // Their bytes, clamped.
  __attribute__((always_inline)) __m512i Bytes(const Avx512Words& words) const {
    return Clamp(Pack(words), lowest_, highest_);
  }

  // Words of the sum with another value, of whose columns those in `inside` are there.
  __attribute__((always_inline)) __m512i AddedBytes(const Avx512Words& words, const int8_t* other,
                                                    __mmask64 inside) const {
    const Avx512Words sum = {Add(words.low, LoadWords(other, inside)),
                             Add(words.high, LoadWords(other + 32, inside >> 32))};
    return Clamp(Pack(sum), _mm512_set1_epi8(static_cast<char>(coding_.sum_lowest)),
                 _mm512_set1_epi8(static_cast<char>(coding_.sum_highest)));
  }

 private:
  static constexpr float kWhole = 12582912;  // 1.5 * 2^23
  alignas(64) static constexpr int16_t kEvenWords[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                         22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                         44, 46, 48, 50, 52, 54, 56, 58, 60, 62};

  __attribute__((always_inline)) static __m512i LoadWords(const int8_t* from, __mmask64 inside) {
    const auto lanes = static_cast<__mmask32>(inside);
    return _mm512_cvtepi8_epi16(lanes == ~__mmask32{0}
                                    ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                                    : _mm256_maskz_loadu_epi8(lanes, from));
  }

  __attribute__((always_inline)) static __m512i Clamp(__m512i bytes, __m512i lowest,
                                                      __m512i highest) {
    return _mm512_min_epi8(_mm512_max_epi8(bytes, lowest), highest);
  }

  __attribute__((always_inline)) static __m512i Pack(const Avx512Words& words) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(order, _mm512_packs_epi16(words.low, words.high));
  }

  __attribute__((always_inline)) __m512i Add(__m512i words, __m512i other) const {
    words = _mm512_max_epi16(words, _mm512_set1_epi16(static_cast<int16_t>(coding_.lowest)));
    words = _mm512_min_epi16(words, _mm512_set1_epi16(static_cast<int16_t>(coding_.highest)));
    const __m512i low = Shifted(_mm512_unpacklo_epi16(words, other));
    const __m512i high = Shifted(_mm512_unpackhi_epi16(words, other));
    const __m512i sum = _mm512_packs_epi32(low, high);
    return _mm512_adds_epi16(sum, _mm512_set1_epi16(static_cast<int16_t>(coding_.sum_zero)));
  }

  // Half a unit goes to all, less one to what is negative: halves go away from zero. Where all that
  // is negative becomes the zero that does not matter.
  __attribute__((always_inline)) __m512i Shifted(__m512i pairs) const {
    const int32_t half = 1 << (coding_.shift - 1);
    const __m512i factors =
        _mm512_set1_epi32(static_cast<uint16_t>(coding_.factor) | coding_.other_factor << 16);
    __m512i sum = _mm512_dpwssd_epi32(_mm512_set1_epi32(coding_.start + half), pairs, factors);
    if (coding_.sum_lowest < coding_.sum_zero) {
      const __mmask16 down = _mm512_cmplt_epi32_mask(sum, _mm512_set1_epi32(half));
      sum = _mm512_mask_sub_epi32(sum, down, sum, _mm512_set1_epi32(1));
    }
    return _mm512_sra_epi32(sum, _mm_cvtsi32_si128(coding_.shift));
  }

  const Int8TileCoding& coding_;
  __m512 whole_;
  __m512i lowest_, highest_;
};

}  // namespace

template <int kRows, int kVectors>
RUNNEL_INLINE void Avx512CodeTile(const Int8Tile& tile, __m512i (&sums)[kRows][kVectors]) {
  const Avx512Coder coder(*tile.coding);
  const __mmask64 inside = FirstBytes(tile.columns);
  if (tile.addend != nullptr) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const auto lanes = static_cast<__mmask16>(inside >> (16 * v));
        const __m512i addend = _mm512_maskz_loadu_epi32(lanes, tile.addend[r] + 16 * v);
        sums[r][v] = _mm512_add_epi32(sums[r][v], addend);
      }
    }
  }
  const bool adds = tile.coding->adds;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const Avx512Words words = coder.Words<kVectors>(sums[r]);
    const __m512i bytes =
        adds ? coder.AddedBytes(words, tile.other[r], inside) : coder.Bytes(words);
    if (kVectors == 4 && tile.columns == 64) {
      _mm512_storeu_si512(tile.y[r], bytes);
    } else {
      _mm512_mask_storeu_epi8(tile.y[r], inside, bytes);
    }
  }
}

}  // namespace runnel::cpu
