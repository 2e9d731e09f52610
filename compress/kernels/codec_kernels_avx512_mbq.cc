// AVX-512 loops of multi-bit quantization: 64 elements a step, the scalar loops finish.

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "compress/bit_pack.h"
#include "compress/kernels/codec_kernels_avx512.h"

namespace runnel {
namespace {

constexpr size_t kBlockBytes = 64;  // one vector of each plane

template <int K>
struct Accumulators {
  __m512d x[2];          // lanes 0..7 and 8..15
  __m512d ones_x[K][2];  // the same for each plane
  int64_t ones[K];
  int64_t differ[K][K];
};

// Entries of a table of 2^B floats. Registers rather than a gather, even for 256 entries.
template <int B>
RUNNEL_AVX512_INLINE __m512 LookUp(const float* table, __m512i index) {
  if constexpr (B <= 4) {
    return _mm512_permutexvar_ps(index, _mm512_loadu_ps(table));
  } else if constexpr (B == 5) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(table), index, _mm512_loadu_ps(table + 16));
  } else {
    const __mmask16 upper = _mm512_test_epi32_mask(index, _mm512_set1_epi32(1 << (B - 1)));
    return _mm512_mask_blend_ps(upper, LookUp<B - 1>(table, index),
                                LookUp<B - 1>(table + (1 << (B - 1)), index));
  }
}

// The sorted rank of each element, bit by bit down the search tree. A chain of look-ups is long: Q
// of them interleave.
template <int K, int L, int Q>
RUNNEL_AVX512_INLINE void Descend(const MbqSearch& search, const __m512* x, __m512i* rank) {
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q) {
    const __m512 threshold = LookUp<L>(search.tree.data() + (1 << L), rank[q]);
    const __mmask16 above = _mm512_cmp_ps_mask(x[q], threshold, _CMP_GT_OQ);
    const __m512i twice = _mm512_add_epi32(rank[q], rank[q]);
    rank[q] = _mm512_mask_add_epi32(twice, above, twice, _mm512_set1_epi32(1));
  }
  if constexpr (L + 1 < K) Descend<K, L + 1, Q>(search, x, rank);
}

// Codes of 16 Q elements.
template <int K, int Q>
RUNNEL_AVX512_INLINE void FindCodes(const float* from, const MbqSearch& search, int32_t* codes) {
  __m512 x[Q];
  __m512i rank[Q];
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q) {
    x[q] = _mm512_loadu_ps(from + 16 * q);
    rank[q] = _mm512_setzero_si512();
  }
  Descend<K, 0, Q>(search, x, rank);
  const auto* code_of_rank = reinterpret_cast<const float*>(search.code_of_rank.data());
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q) {
    _mm512_store_ps(codes + 16 * q, LookUp<K>(code_of_rank, rank[q]));
  }
}

// Planes of eight elements from their codes. Eight, because that is what a mask of doubles covers:
// splitting masks of sixteen costs more than the second comparison.
template <int K>
RUNNEL_AVX512_INLINE void BitsOfCodes(const int32_t* codes, __mmask8* bits) {
  const __m256i eight = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes));
#pragma GCC unroll 8
  for (int i = 0; i < K; ++i) {
    bits[i] = _mm256_test_epi32_mask(eight, _mm256_set1_epi32(1 << (K - 1 - i)));
  }
}

// Two or three bits in natural order: the outcomes of the comparisons are the planes, and blending
// finds the thresholds sooner than looking them up.
template <int K>
RUNNEL_AVX512_INLINE void BitsDirect(const float* x, const MbqSearch& search, __mmask8* bits) {
  static_assert(K == 2 || K == 3);
  const __m256 value = _mm256_loadu_ps(x);
  __m256 node[8];
#pragma GCC unroll 8
  for (int i = 1; i < (1 << K); ++i) node[i] = _mm256_set1_ps(search.tree[i]);
  bits[0] = _mm256_cmp_ps_mask(value, node[1], _CMP_GT_OQ);
  bits[1] = _mm256_cmp_ps_mask(value, _mm256_mask_blend_ps(bits[0], node[2], node[3]), _CMP_GT_OQ);
  if constexpr (K == 3) {
    const __m256 lower = _mm256_mask_blend_ps(bits[0], node[4], node[6]);
    const __m256 upper = _mm256_mask_blend_ps(bits[0], node[5], node[7]);
    bits[2] = _mm256_cmp_ps_mask(value, _mm256_mask_blend_ps(bits[1], lower, upper), _CMP_GT_OQ);
  }
}

// Encodes `count` times 64 elements; block[i] gets plane i, the first element of a byte in its
// lowest bit. All codes are found first: one chain of look-ups then hides behind the others.
template <int K, bool kDirect>
RUNNEL_AVX512_INLINE void EncodeBlock(const float* x, size_t count, const MbqSearch& search,
                                      uint8_t (*block)[kBlockBytes], Accumulators<K>* sums) {
  alignas(64) int32_t codes[8 * kBlockBytes];
  if constexpr (!kDirect) {
    size_t w = 0;
    for (; w + 2 <= count; w += 2) FindCodes<K, 8>(x + 64 * w, search, codes + 64 * w);
    if (w < count) FindCodes<K, 4>(x + 64 * w, search, codes + 64 * w);
  }
  for (size_t byte = 0; byte < 8 * count; byte += 2) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const float* from = x + 8 * (byte + half);
      __mmask8 bits[K];
      if constexpr (kDirect) {
        BitsDirect<K>(from, search, bits);
      } else {
        BitsOfCodes<K>(codes + 8 * (byte + half), bits);
      }
      const __m512d wide = _mm512_cvtps_pd(_mm256_loadu_ps(from));
      sums->x[half] = _mm512_add_pd(sums->x[half], wide);
#pragma GCC unroll 8
      for (int i = 0; i < K; ++i) {
        __m512d* lanes = &sums->ones_x[i][half];
        *lanes = _mm512_mask_add_pd(*lanes, bits[i], *lanes, wide);
        block[i][byte + half] = bits[i];
      }
    }
  }
}

template <int K>
RUNNEL_AVX512_INLINE void CountBits(const uint8_t (*block)[kBlockBytes], size_t count,
                                    Accumulators<K>* sums) {
  for (size_t w = 0; w < count; ++w) {
    uint64_t words[K];
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) {
      std::memcpy(&words[i], block[i] + 8 * w, 8);
      sums->ones[i] += _mm_popcnt_u64(words[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) {
#pragma GCC unroll 8
      for (int j = i + 1; j < K; ++j) sums->differ[i][j] += _mm_popcnt_u64(words[i] ^ words[j]);
    }
  }
}

// Reverses the bits of each byte: element 0 of a byte belongs in its top bit.
RUNNEL_AVX512_INLINE __m512i ReverseBits(__m512i bytes) {
  const __m512i reversed =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15));
  const __m512i low_four = _mm512_set1_epi8(15);
  const __m512i low = _mm512_and_si512(bytes, low_four);
  const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_four);
  return _mm512_or_si512(_mm512_slli_epi16(_mm512_shuffle_epi8(reversed, low), 4),
                         _mm512_shuffle_epi8(reversed, high));
}

template <int K, bool kDirect>
RUNNEL_AVX512 void MbqEncode(const float* x, size_t n, const MbqSearch& search, std::byte* planes,
                             MbqSums* out) {
  *out = MbqSums();
  Accumulators<K> sums;
  std::memset(&sums, 0, sizeof(sums));
  const size_t stride = PlaneBytes(n);
  const size_t words = n / 64;
  for (size_t first = 0; first < words; first += kBlockBytes / 8) {
    const size_t count = std::min(words - first, kBlockBytes / 8);
    uint8_t block[K][kBlockBytes];
    EncodeBlock<K, kDirect>(x + 64 * first, count, search, block, &sums);
    CountBits<K>(block, count, &sums);
    const auto used = static_cast<__mmask8>((1u << count) - 1);
    for (int i = 0; i < K; ++i) {
      const __m512i bits = ReverseBits(_mm512_maskz_loadu_epi64(used, block[i]));
      _mm512_mask_storeu_epi64(planes + i * stride + 8 * first, used, bits);
    }
  }
  std::memcpy(out->x.data(), sums.x, sizeof(sums.x));
  for (int i = 0; i < K; ++i) {
    std::memcpy(out->ones_x[i].data(), sums.ones_x[i], sizeof(sums.ones_x[i]));
    out->ones[i] = sums.ones[i];
    for (int j = i + 1; j < K; ++j) out->differ[i][j] = sums.differ[i][j];
  }
  ScalarMbqEncodeFrom(64 * words, x, n, search, planes, out);
}

template <int K>
RUNNEL_AVX512 void MbqDecode(const std::byte* planes, size_t n, const MbqLevels& levels,
                             float* out) {
  // The bit of each element within four bytes of a plane.
  const __m512i first =
      _mm512_sllv_epi32(_mm512_set1_epi32(1),
                        _mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
  const __m512i second = _mm512_slli_epi32(first, 16);
  const size_t stride = PlaneBytes(n);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 32) {
    __m512i low = _mm512_setzero_si512();
    __m512i high = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) {
      int32_t word;
      std::memcpy(&word, planes + i * stride + e / 8, sizeof(word));
      const __m512i bits = _mm512_set1_epi32(word);
      const __m512i weight = _mm512_set1_epi32(1 << (K - 1 - i));
      low = _mm512_mask_or_epi32(low, _mm512_test_epi32_mask(bits, first), low, weight);
      high = _mm512_mask_or_epi32(high, _mm512_test_epi32_mask(bits, second), high, weight);
    }
    _mm512_storeu_ps(out + e, LookUp<K>(levels.value.data(), low));
    _mm512_storeu_ps(out + e + 16, LookUp<K>(levels.value.data(), high));
  }
  ScalarMbqDecodeFrom(main, planes, n, levels, out);
}

using EncodeFn = void (*)(const float*, size_t, const MbqSearch&, std::byte*, MbqSums*);
using DecodeFn = void (*)(const std::byte*, size_t, const MbqLevels&, float*);

constexpr EncodeFn kEncode[kMaxMbqBits - 1] = {
    MbqEncode<2, false>, MbqEncode<3, false>, MbqEncode<4, false>, MbqEncode<5, false>,
    MbqEncode<6, false>, MbqEncode<7, false>, MbqEncode<8, false>};
constexpr EncodeFn kEncodeDirect[] = {MbqEncode<2, true>, MbqEncode<3, true>};
constexpr DecodeFn kDecode[kMaxMbqBits - 1] = {MbqDecode<2>, MbqDecode<3>, MbqDecode<4>,
                                               MbqDecode<5>, MbqDecode<6>, MbqDecode<7>,
                                               MbqDecode<8>};

}  // namespace

void Avx512MbqEncode(const float* x, size_t n, const MbqSearch& search, std::byte* planes,
                     MbqSums* sums) {
  const bool direct = search.natural && search.k <= 3;
  (direct ? kEncodeDirect : kEncode)[search.k - 2](x, n, search, planes, sums);
}

void Avx512MbqDecode(const std::byte* planes, size_t n, const MbqLevels& levels, float* out) {
  kDecode[levels.k - 2](planes, n, levels, out);
}

}  // namespace runnel

#endif  // defined(__x86_64__)
