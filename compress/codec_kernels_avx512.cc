// AVX-512 (F, BW, DQ, VL) rows of the codecs' inner loops: 64 elements a step, the scalar loops
// finish. Functions carry their target attribute, so that nothing else in this file's object code
// (inline functions of headers) needs more than the baseline.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "compress/bit_pack.h"
#include "compress/codec_kernels.h"
#include "compress/stochastic_rounding.h"

#define RUNNEL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")))
#define RUNNEL_AVX512_INLINE RUNNEL_AVX512 __attribute__((always_inline)) static inline

namespace runnel {
namespace {

template <int K>
struct Accumulators {
  __m512d x[2];          // lanes 0..7 and 8..15
  __m512d ones_x[K][2];  // the same for each plane
  int64_t ones[K];
  int64_t differ[K][K];
};

// Thresholds of level L after a prefix, whose last outcome was `above`.
template <int L>
RUNNEL_AVX512_INLINE __m512 Threshold(const MbqSearch& search, __m512i prefix, __mmask16 above) {
  const float* level = search.tree.data() + (1 << L);
  if constexpr (L == 0) return _mm512_set1_ps(level[0]);
  if constexpr (L == 1) {
    return _mm512_mask_blend_ps(above, _mm512_set1_ps(level[0]), _mm512_set1_ps(level[1]));
  }
  if constexpr (L >= 2 && L <= 4) return _mm512_permutexvar_ps(prefix, _mm512_loadu_ps(level));
  if constexpr (L > 4) return _mm512_i32gather_ps(prefix, level, 4);
}

// 64 elements on their way through the tree, as four vectors whose chains interleave.
struct Batch {
  __m512 x[4];
  __m512i prefix[4];
  __mmask16 above[4];
};

// Adds what bit plane i says about the 16 elements at x, vector q of a batch. words[i] collects the
// plane with the first element in the lowest bit.
template <int K>
RUNNEL_AVX512_INLINE void AddPlane(const float* x, __mmask16 bits, int i, int q, uint64_t* words,
                                   Accumulators<K>* sums) {
  const __m512d low = _mm512_cvtps_pd(_mm256_loadu_ps(x));
  const __m512d high = _mm512_cvtps_pd(_mm256_loadu_ps(x + 8));
  __m512d* lanes = sums->ones_x[i];
  lanes[0] = _mm512_mask_add_pd(lanes[0], static_cast<__mmask8>(bits), lanes[0], low);
  lanes[1] = _mm512_mask_add_pd(lanes[1], static_cast<__mmask8>(bits >> 8), lanes[1], high);
  words[i] |= uint64_t{bits} << (16 * q);
}

// Level by level down the search tree; with natural codes each outcome is a plane.
template <int K, bool kNatural, int L>
RUNNEL_AVX512_INLINE void Descend(const float* x, const MbqSearch& search, Batch* batch,
                                  uint64_t* words, Accumulators<K>* sums) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m512 threshold = Threshold<L>(search, batch->prefix[q], batch->above[q]);
    const __mmask16 above = _mm512_cmp_ps_mask(batch->x[q], threshold, _CMP_GT_OQ);
    batch->above[q] = above;
    const __m512i twice = _mm512_add_epi32(batch->prefix[q], batch->prefix[q]);
    batch->prefix[q] = _mm512_mask_add_epi32(twice, above, twice, _mm512_set1_epi32(1));
    if constexpr (kNatural) AddPlane<K>(x + 16 * q, above, L, q, words, sums);
  }
  if constexpr (L + 1 < K) Descend<K, kNatural, L + 1>(x, search, batch, words, sums);
}

// The planes of sorted ranks that are not the codes.
template <int K>
RUNNEL_AVX512_INLINE void AddPlanesOfRanks(const float* x, const MbqSearch& search,
                                           const Batch& batch, uint64_t* words,
                                           Accumulators<K>* sums) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    __m512i code;
    if constexpr (K <= 4) {
      code =
          _mm512_permutexvar_epi32(batch.prefix[q], _mm512_load_si512(search.code_of_rank.data()));
    } else {
      code = _mm512_i32gather_epi32(batch.prefix[q], search.code_of_rank.data(), 4);
    }
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) {
      const __mmask16 bits = _mm512_test_epi32_mask(code, _mm512_set1_epi32(1 << (K - 1 - i)));
      AddPlane<K>(x + 16 * q, bits, i, q, words, sums);
    }
  }
}

// Encodes 64 elements; words gets K plane words, kMaxWords apart.
template <int K, bool kNatural>
RUNNEL_AVX512_INLINE void EncodeSixtyFour(const float* x, const MbqSearch& search, uint64_t* out,
                                          Accumulators<K>* sums) {
  uint64_t words[K] = {};
  Batch batch;
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const float* from = x + 16 * q;
    batch.x[q] = _mm512_loadu_ps(from);
    batch.prefix[q] = _mm512_setzero_si512();
    batch.above[q] = 0;
    sums->x[0] = _mm512_add_pd(sums->x[0], _mm512_cvtps_pd(_mm256_loadu_ps(from)));
    sums->x[1] = _mm512_add_pd(sums->x[1], _mm512_cvtps_pd(_mm256_loadu_ps(from + 8)));
  }
  Descend<K, kNatural, 0>(x, search, &batch, words, sums);
  if constexpr (!kNatural) AddPlanesOfRanks<K>(x, search, batch, words, sums);
#pragma GCC unroll 8
  for (int i = 0; i < K; ++i) {
    out[8 * i] = words[i];
    sums->ones[i] += _mm_popcnt_u64(words[i]);
#pragma GCC unroll 8
    for (int j = i + 1; j < K; ++j) sums->differ[i][j] += _mm_popcnt_u64(words[i] ^ words[j]);
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

template <int K, bool kNatural>
RUNNEL_AVX512 void MbqEncode(const float* x, size_t n, const MbqSearch& search, std::byte* planes,
                             MbqSums* out) {
  *out = MbqSums();
  Accumulators<K> sums;
  std::memset(&sums, 0, sizeof(sums));
  const size_t stride = PlaneBytes(n);
  const size_t words = n / 64;
  for (size_t first = 0; first < words; first += 8) {
    const size_t count = words - first < 8 ? words - first : 8;
    uint64_t block[K][8];
    for (size_t w = 0; w < count; ++w) {
      EncodeSixtyFour<K, kNatural>(x + 64 * (first + w), search, &block[0][w], &sums);
    }
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

// Values of 16 codes.
template <int K>
RUNNEL_AVX512_INLINE __m512 LookUp(const MbqLevels& levels, __m512i code) {
  const float* value = levels.value.data();
  if constexpr (K <= 4) return _mm512_permutexvar_ps(code, _mm512_load_ps(value));
  if constexpr (K == 5) {
    return _mm512_permutex2var_ps(_mm512_load_ps(value), code, _mm512_load_ps(value + 16));
  }
  if constexpr (K > 5) return _mm512_i32gather_ps(code, value, 4);
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
    _mm512_storeu_ps(out + e, LookUp<K>(levels, low));
    _mm512_storeu_ps(out + e + 16, LookUp<K>(levels, high));
  }
  ScalarMbqDecodeFrom(main, planes, n, levels, out);
}

RUNNEL_AVX512 uint32_t MaxAbsBits(const float* x, size_t n) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                        _mm512_setzero_si512()};
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 64) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i bits = _mm512_loadu_si512(x + e + 16 * i);
      largest[i] = _mm512_max_epu32(largest[i], _mm512_and_si512(bits, magnitude));
    }
  }
  const __m512i all = _mm512_max_epu32(_mm512_max_epu32(largest[0], largest[1]),
                                       _mm512_max_epu32(largest[2], largest[3]));
  return ScalarMaxAbsBitsFrom(main, x, n, _mm512_reduce_max_epu32(all));
}

// Like a shift by 32 of 64-bit lanes, for which there are fewer ports.
RUNNEL_AVX512_INLINE __m512i SwapHalves(__m512i x) {
  return _mm512_shuffle_epi32(x, _MM_PERM_CDAB);
}

RUNNEL_AVX512_INLINE __m512i Xor3(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

// Philox4x32 blocks, eight a vector: each word stands in the low half of a 64-bit lane, which is
// what a widening multiplication reads; high halves hold leftovers. kGroups vectors go through the
// rounds side by side: one alone would wait for its own multiplications.
constexpr int kGroups = 4;
constexpr int kDrawn = 32 * kGroups;  // elements
constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;

class Uniforms {
 public:
  RUNNEL_AVX512 __attribute__((always_inline)) explicit Uniforms(const CounterRandom& random) {
    // Blocks 0, 4, 1, 5, ...: the order that Draw's unpacking puts right.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    first_product_ = _mm512_mul_epu32(order, _mm512_set1_epi64(kMultiplier0));
    for (uint32_t round = 0; round < 7; ++round) {
      key_[round][0] = _mm512_set1_epi64(random.key()[0] + round * 0x9E3779B9u);
      key_[round][1] = _mm512_set1_epi64(random.key()[1] + round * 0xBB67AE85u);
    }
    const std::array<uint32_t, 2> sequence = random.sequence_words();
    second_product_ =
        _mm512_mul_epu32(_mm512_set1_epi64(sequence[0]), _mm512_set1_epi64(kMultiplier1));
    c0_ = _mm512_xor_si512(SwapHalves(second_product_), key_[0][0]);
    c3_and_key_ = _mm512_xor_si512(_mm512_set1_epi64(sequence[1]), key_[0][1]);
  }

  // Bits of the next kDrawn elements, 16 a vector; beside(i), i = 0..3, runs between rounds. Blocks
  // stay below 2^32 (Shape::kMaxElements), so the counter's second word is 0.
  template <typename Beside>
  RUNNEL_AVX512 __attribute__((always_inline)) void Draw(Beside beside, __m512i* bits) {
    const __m512i m0 = _mm512_set1_epi64(kMultiplier0);
    const __m512i m1 = _mm512_set1_epi64(kMultiplier1);
    __m512i c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
    // Round 0 is known but for its first product.
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const __m512i product =
          _mm512_add_epi64(first_product_, _mm512_set1_epi64(uint64_t{kMultiplier0} * 8 * g));
      c0[g] = c0_;
      c1[g] = second_product_;
      c2[g] = _mm512_xor_si512(SwapHalves(product), c3_and_key_);
      c3[g] = product;
    }
    first_product_ =
        _mm512_add_epi64(first_product_, _mm512_set1_epi64(uint64_t{kMultiplier0} * 8 * kGroups));
#pragma GCC unroll 5
    for (uint32_t round = 1; round < 6; ++round) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        const __m512i p0 = _mm512_mul_epu32(c0[g], m0);
        const __m512i p1 = _mm512_mul_epu32(c2[g], m1);
        c0[g] = Xor3(SwapHalves(p1), c1[g], key_[round][0]);
        c2[g] = Xor3(SwapHalves(p0), c3[g], key_[round][1]);
        c1[g] = p1;
        c3[g] = p0;
      }
      if (round <= 4) beside(round - 1);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const __m512i c01 = LastRound(_mm512_mul_epu32(c2[g], m1), c1[g], key_[6][0]);
      const __m512i c23 = LastRound(_mm512_mul_epu32(c0[g], m0), c3[g], key_[6][1]);
      bits[2 * g] = _mm512_unpacklo_epi64(c01, c23);
      bits[2 * g + 1] = _mm512_unpackhi_epi64(c01, c23);
    }
  }

 private:
  // The new even word low, the product's low half high: two words of each block, side by side.
  RUNNEL_AVX512_INLINE __m512i LastRound(__m512i product, __m512i other, __m512i key) {
    const __mmask16 even = 0x5555;
    return _mm512_mask_ternarylogic_epi32(SwapHalves(product), even, other, key, 0x96);
  }

  // Loaded where they are needed: loads are free here, broadcasts are not.
  __m512i key_[7][2];
  // Of round 0. The first product is linear in the block: additions carry it along. The second is
  // the same for all blocks.
  __m512i first_product_, second_product_;
  __m512i c0_, c3_and_key_;  // after round 0: its first word; its fourth, before the product
};

// The fixed-point sum of StochasticQuantize for 16 elements; divisor is scale * 2^-24. |g / scale|
// is less than a rounding above the limit, so that the upper clamp may come after the conversion
// and the lower one later still.
RUNNEL_AVX512_INLINE __m512i FixedSum(const float* g, __m512 divisor, __m512i limit, __m512i bits) {
  const __m512 v = _mm512_div_ps(_mm512_loadu_ps(g), divisor);
  const __m512i fixed = _mm512_cvt_roundps_epi32(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  const __m512i sum = _mm512_add_epi32(_mm512_min_epi32(limit, fixed), _mm512_srli_epi32(bits, 8));
  return _mm512_srai_epi32(sum, 24);
}

// StochasticQuantize of 64 elements as bytes, from their fixed-point sums.
RUNNEL_AVX512_INLINE __m512i PackSixtyFour(const __m512i* q, int limit) {
  // Packing works within 128-bit lanes; the permutation puts the order right.
  const __m512i packed =
      _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i clamped = _mm512_max_epi8(packed, _mm512_set1_epi8(static_cast<char>(-limit)));
  return _mm512_permutexvar_epi32(order, clamped);
}

// How 64 quantized elements, the ones from `element` on, are written.
struct AsInt8 {
  static constexpr int kLimit = 127;
  static constexpr auto kScalar = ScalarStochasticEncode8From;
  RUNNEL_AVX512_INLINE void Store(__m512i q, size_t element, std::byte* out) {
    _mm512_storeu_si512(out + element, q);
  }
};
struct AsNibbles {
  static constexpr int kLimit = 7;
  static constexpr auto kScalar = ScalarStochasticEncode4From;
  RUNNEL_AVX512_INLINE void Store(__m512i q, size_t element, std::byte* out) {
    // 16 * even element + odd element.
    const __m512i pairs =
        _mm512_maddubs_epi16(_mm512_add_epi8(q, _mm512_set1_epi8(8)), _mm512_set1_epi16(0x0110));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + element / 2), _mm512_cvtepi16_epi8(pairs));
  }
};

// Quantizes kDrawn elements in four parts, which run between the rounds of the next draw.
template <typename Format>
struct Quantizer {
  __m512 divisor;
  const float* g;
  std::byte* out;
  size_t element;
  const __m512i* bits;
  __m512i q[4];

  RUNNEL_AVX512 __attribute__((always_inline)) void operator()(int part) {
    const __m512i limit = _mm512_set1_epi32(Format::kLimit << 24);
    constexpr int kEach = kDrawn / 64;
#pragma GCC unroll 4
    for (int i = kEach * part; i < kEach * (part + 1); ++i) {
      q[i % 4] = FixedSum(g + element + 16 * i, divisor, limit, bits[i]);
      if (i % 4 == 3) Format::Store(PackSixtyFour(q, Format::kLimit), element + 16 * (i - 3), out);
    }
  }
};

struct Nothing {
  RUNNEL_AVX512 __attribute__((always_inline)) void operator()(int) {}
};

template <typename Format>
RUNNEL_AVX512 void StochasticEncode(const float* g, size_t n, float scale,
                                    const CounterRandom& random, std::byte* out) {
  const size_t main = scale < kSmallScale ? 0 : n - n % kDrawn;
  if (main > 0) {
    Uniforms uniforms(random);
    __m512i bits[kDrawn / 16];
    uniforms.Draw(Nothing(), bits);
    Quantizer<Format> quantizer{_mm512_set1_ps(scale * 0x1p-24f), g, out, 0, bits, {}};
    for (; quantizer.element + kDrawn < main; quantizer.element += kDrawn) {
      __m512i next[kDrawn / 16];
      uniforms.Draw(quantizer, next);
      std::memcpy(bits, next, sizeof(bits));
    }
    for (int part = 0; part < 4; ++part) quantizer(part);
  }
  Format::kScalar(main, g, n, scale, random, out);
}

RUNNEL_AVX512 void StochasticDecode8(const std::byte* q, size_t n, float scale, float* out) {
  const __m512 s = _mm512_set1_ps(scale);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q + e));
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    _mm512_storeu_ps(out + e, _mm512_mul_ps(values, s));
  }
  ScalarStochasticDecode8From(main, q, n, scale, out);
}

RUNNEL_AVX512 void StochasticDecode4(const std::byte* q, size_t n, float scale, float* out) {
  const __m512i codes = _mm512_setr_epi32(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512 levels = _mm512_mul_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(scale));
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 16) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q + e / 2));
    const __m512i wide = _mm512_cvtepu8_epi64(bytes);
    // Even elements are high nibbles; the look-up reads only the low four bits of each lane.
    const __m512i index = _mm512_or_si512(_mm512_srli_epi64(wide, 4), _mm512_slli_epi64(wide, 32));
    _mm512_storeu_ps(out + e, _mm512_permutexvar_ps(index, levels));
  }
  ScalarStochasticDecode4From(main, q, n, scale, out);
}

using EncodeFn = void (*)(const float*, size_t, const MbqSearch&, std::byte*, MbqSums*);
using DecodeFn = void (*)(const std::byte*, size_t, const MbqLevels&, float*);

constexpr EncodeFn kEncode[kMaxMbqBits - 1][2] = {
    {MbqEncode<2, false>, MbqEncode<2, true>}, {MbqEncode<3, false>, MbqEncode<3, true>},
    {MbqEncode<4, false>, MbqEncode<4, true>}, {MbqEncode<5, false>, MbqEncode<5, true>},
    {MbqEncode<6, false>, MbqEncode<6, true>}, {MbqEncode<7, false>, MbqEncode<7, true>},
    {MbqEncode<8, false>, MbqEncode<8, true>}};
constexpr DecodeFn kDecode[kMaxMbqBits - 1] = {MbqDecode<2>, MbqDecode<3>, MbqDecode<4>,
                                               MbqDecode<5>, MbqDecode<6>, MbqDecode<7>,
                                               MbqDecode<8>};

}  // namespace

const CodecKernels kAvx512CodecKernels = {
    .name = "avx512",
    .max_abs_bits = MaxAbsBits,
    .mbq_encode =
        [](const float* x, size_t n, const MbqSearch& search, std::byte* planes, MbqSums* sums) {
          kEncode[search.k - 2][search.natural ? 1 : 0](x, n, search, planes, sums);
        },
    .mbq_decode = [](const std::byte* planes, size_t n, const MbqLevels& levels,
                     float* out) { kDecode[levels.k - 2](planes, n, levels, out); },
    .stochastic_encode8 = StochasticEncode<AsInt8>,
    .stochastic_encode4 = StochasticEncode<AsNibbles>,
    .stochastic_decode8 = StochasticDecode8,
    .stochastic_decode4 = StochasticDecode4,
};

}  // namespace runnel

#endif  // defined(__x86_64__)
