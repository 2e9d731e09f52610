// AVX2 rows of the codecs' inner loops: 64 elements a step, the scalar loops finish. Functions
// carry their target attribute, so that nothing else in this file's object code (inline functions
// of headers) needs more than the baseline.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "compress/bit_pack.h"
#include "compress/kernels/codec_kernels.h"
#include "compress/stochastic_rounding.h"

#define RUNNEL_AVX2 __attribute__((target("avx2,popcnt")))
#define RUNNEL_AVX2_INLINE RUNNEL_AVX2 __attribute__((always_inline)) static inline

namespace runnel {
namespace {

template <int K>
struct Accumulators {
  __m256d x[4];          // lanes 7..4, 3..0, 15..12, 11..8
  __m256d ones_x[K][4];  // the same for each plane
  int64_t ones[K];
  int64_t differ[K][K];
};

// Entries of a table of 2^B floats.
template <int B>
RUNNEL_AVX2_INLINE __m256 LookUp(const float* table, __m256i index) {
  if constexpr (B <= 3) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
  } else if constexpr (B <= 5) {
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(index, 32 - B));
    return _mm256_blendv_ps(LookUp<B - 1>(table, index),
                            LookUp<B - 1>(table + (1 << (B - 1)), index), upper);
  } else {
    return _mm256_i32gather_ps(table, index, 4);
  }
}

// Level by level down the search tree; outcome[l] is all ones where x is above its threshold.
template <int K, int L>
RUNNEL_AVX2_INLINE __m256i Descend(__m256 x, const MbqSearch& search, __m256i prefix,
                                   __m256i* outcome) {
  if constexpr (L == K) {
    return prefix;
  } else {
    outcome[L] = _mm256_castps_si256(
        _mm256_cmp_ps(x, LookUp<L>(search.tree.data() + (1 << L), prefix), _CMP_GT_OQ));
    const __m256i twice = _mm256_add_epi32(prefix, prefix);
    return Descend<K, L + 1>(x, search, _mm256_sub_epi32(twice, outcome[L]), outcome);
  }
}

template <int K>
RUNNEL_AVX2_INLINE void PlanesOfRank(const MbqSearch& search, __m256i rank, __m256i* bits) {
  const auto* codes = reinterpret_cast<const float*>(search.code_of_rank.data());
  const __m256i code = _mm256_castps_si256(LookUp<K>(codes, rank));
#pragma GCC unroll 8
  for (int i = 0; i < K; ++i) {
    const __m256i bit = _mm256_set1_epi32(1 << (K - 1 - i));
    bits[i] = _mm256_cmpeq_epi32(_mm256_and_si256(code, bit), bit);
  }
}

// x where the mask is set, 0.0 elsewhere; adding 0.0 changes no lane (none is ever -0.0).
RUNNEL_AVX2_INLINE __m256d Selected(__m128i mask, __m256d x) {
  return _mm256_and_pd(_mm256_castsi256_pd(_mm256_cvtepi32_epi64(mask)), x);
}

// `half`: 0 for sum lanes 0..7, 1 for 8..15.
template <int K, bool kNatural>
RUNNEL_AVX2_INLINE void EncodeEight(const float* from, const MbqSearch& search, int half, int shift,
                                    uint64_t* words, Accumulators<K>* sums) {
  // Reversed, so that sign masks come out most significant bit first.
  const __m256 x =
      _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
  __m256i bits[K];
  const __m256i rank = Descend<K, 0>(x, search, _mm256_setzero_si256(), bits);
  if constexpr (!kNatural) PlanesOfRank<K>(search, rank, bits);
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  __m256d* all = sums->x + 2 * half;
  all[0] = _mm256_add_pd(all[0], low);
  all[1] = _mm256_add_pd(all[1], high);
#pragma GCC unroll 8
  for (int i = 0; i < K; ++i) {
    __m256d* lanes = sums->ones_x[i] + 2 * half;
    lanes[0] = _mm256_add_pd(lanes[0], Selected(_mm256_castsi256_si128(bits[i]), low));
    lanes[1] = _mm256_add_pd(lanes[1], Selected(_mm256_extracti128_si256(bits[i], 1), high));
    const auto byte = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(bits[i])));
    words[i] |= uint64_t{byte} << shift;
  }
}

template <int K>
RUNNEL_AVX2_INLINE void CountWords(const uint64_t* words, Accumulators<K>* sums) {
#pragma GCC unroll 8
  for (int i = 0; i < K; ++i) {
    sums->ones[i] += _mm_popcnt_u64(words[i]);
#pragma GCC unroll 8
    for (int j = i + 1; j < K; ++j) sums->differ[i][j] += _mm_popcnt_u64(words[i] ^ words[j]);
  }
}

RUNNEL_AVX2_INLINE void StoreLanes(const __m256d* sums, SumLanes* lanes) {
  for (int part = 0; part < 4; ++part) {
    const int first = (part ^ 1) * 4;
    _mm256_storeu_pd(lanes->data() + first, _mm256_permute4x64_pd(sums[part], 0x1B));
  }
}

template <int K, bool kNatural>
RUNNEL_AVX2 void MbqEncode(const float* x, size_t n, const MbqSearch& search, std::byte* planes,
                           MbqSums* out) {
  *out = MbqSums();
  Accumulators<K> sums;
  std::memset(&sums, 0, sizeof(sums));
  const size_t stride = PlaneBytes(n);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 64) {
    uint64_t words[K] = {};
#pragma GCC unroll 8
    for (int octet = 0; octet < 8; ++octet) {
      EncodeEight<K, kNatural>(x + e + 8 * octet, search, octet % 2, 8 * octet, words, &sums);
    }
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) std::memcpy(planes + i * stride + e / 8, &words[i], 8);
    CountWords<K>(words, &sums);
  }
  StoreLanes(sums.x, &out->x);
  for (int i = 0; i < K; ++i) {
    StoreLanes(sums.ones_x[i], &out->ones_x[i]);
    out->ones[i] = sums.ones[i];
    for (int j = i + 1; j < K; ++j) out->differ[i][j] = sums.differ[i][j];
  }
  ScalarMbqEncodeFrom(main, x, n, search, planes, out);
}

template <int K>
RUNNEL_AVX2 void MbqDecode(const std::byte* planes, size_t n, const MbqLevels& levels, float* out) {
  // The bit of each element within one byte of a plane.
  const __m256i first =
      _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
  const size_t stride = PlaneBytes(n);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 32) {
    __m256i code[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                       _mm256_setzero_si256()};
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) {
      int32_t word;
      std::memcpy(&word, planes + i * stride + e / 8, sizeof(word));
      const __m256i bits = _mm256_set1_epi32(word);
      const __m256i weight = _mm256_set1_epi32(1 << (K - 1 - i));
#pragma GCC unroll 4
      for (int octet = 0; octet < 4; ++octet) {
        const __m256i bit = _mm256_slli_epi32(first, 8 * octet);
        const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(bits, bit), bit);
        code[octet] = _mm256_or_si256(code[octet], _mm256_and_si256(set, weight));
      }
    }
#pragma GCC unroll 4
    for (int octet = 0; octet < 4; ++octet) {
      _mm256_storeu_ps(out + e + 8 * octet, LookUp<K>(levels.value.data(), code[octet]));
    }
  }
  ScalarMbqDecodeFrom(main, planes, n, levels, out);
}

RUNNEL_AVX2 uint32_t MaxAbsBits(const float* x, size_t n) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i largest[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                        _mm256_setzero_si256()};
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 32) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + e + 8 * i));
      largest[i] = _mm256_max_epu32(largest[i], _mm256_and_si256(bits, magnitude));
    }
  }
  const __m256i all = _mm256_max_epu32(_mm256_max_epu32(largest[0], largest[1]),
                                       _mm256_max_epu32(largest[2], largest[3]));
  uint32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), all);
  uint32_t so_far = 0;
  for (uint32_t lane : lanes) so_far = lane > so_far ? lane : so_far;
  return ScalarMaxAbsBitsFrom(main, x, n, so_far);
}

RUNNEL_AVX2 int64_t MarkOutside(const float* x, size_t n, float low, float high, std::byte* below,
                                std::byte* above) {
  const __m256 lows = _mm256_set1_ps(low), highs = _mm256_set1_ps(high);
  const size_t main = n & ~size_t{63};
  int64_t outside = 0;
  for (size_t e = 0; e < main; e += 8) {
    const __m256 values = _mm256_loadu_ps(x + e);
    const int is_below = _mm256_movemask_ps(_mm256_cmp_ps(values, lows, _CMP_LT_OQ));
    const int is_above = _mm256_movemask_ps(_mm256_cmp_ps(values, highs, _CMP_GT_OQ));
    below[e / 8] = static_cast<std::byte>(is_below);
    above[e / 8] = static_cast<std::byte>(is_above);
    outside += _mm_popcnt_u32(static_cast<uint32_t>(is_below | is_above));
  }
  return outside + ScalarMarkOutsideFrom(main, x, n, low, high, below, above);
}

// One Philox4x32 stream, four blocks at once: each word stands in the low half of a 64-bit lane,
// which is what a widening multiplication reads; high halves hold leftovers.
class Uniforms {
 public:
  RUNNEL_AVX2 __attribute__((always_inline)) explicit Uniforms(const CounterRandom& random)
      : key_(random.key()),
        // Element blocks 0, 2, 1, 3: the order that Draw's unpacking puts right.
        block_(_mm256_setr_epi64x(0, 2, 1, 3)),
        c2_(_mm256_set1_epi64x(random.sequence_words()[0])),
        c3_(_mm256_set1_epi64x(random.sequence_words()[1])) {}

  // Bits of the next 16 elements. Blocks stay below 2^32 (Shape::kMaxElements), so the counter's
  // second word is 0.
  RUNNEL_AVX2 __attribute__((always_inline)) void Draw(__m256i* first, __m256i* second) {
    const __m256i m0 = _mm256_set1_epi64x(0xD2511F53u);
    const __m256i m1 = _mm256_set1_epi64x(0xCD9E8D57u);
    __m256i c0 = block_, c1 = _mm256_setzero_si256(), c2 = c2_, c3 = c3_;
    __m256i p0 = c0, p1 = c2;
#pragma GCC unroll 7
    for (int round = 0; round < 7; ++round) {
      p0 = _mm256_mul_epu32(c0, m0);
      p1 = _mm256_mul_epu32(c2, m1);
      const __m256i k0 = _mm256_set1_epi64x(key_[0] + round * 0x9E3779B9u);
      const __m256i k1 = _mm256_set1_epi64x(key_[1] + round * 0xBB67AE85u);
      c0 = _mm256_xor_si256(_mm256_xor_si256(c1, k0), SwapHalves(p1));
      c2 = _mm256_xor_si256(_mm256_xor_si256(c3, k1), SwapHalves(p0));
      c1 = p1;
      c3 = p0;
    }
    const __m256i c01 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xAA);
    const __m256i c23 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xAA);
    *first = _mm256_unpacklo_epi64(c01, c23);
    *second = _mm256_unpackhi_epi64(c01, c23);
    block_ = _mm256_add_epi64(block_, _mm256_set1_epi64x(4));
  }

 private:
  // Like a shift by 32, for which there are fewer ports.
  RUNNEL_AVX2_INLINE __m256i SwapHalves(__m256i x) { return _mm256_shuffle_epi32(x, 0xB1); }

  std::array<uint32_t, 2> key_;
  __m256i block_, c2_, c3_;
};

// StochasticQuantize of 8 elements; divisor is scale * 2^-24. |g / scale| is below limit + 1, so
// that the clamp may come after the conversion.
RUNNEL_AVX2_INLINE __m256i Quantize(const float* g, __m256 divisor, __m256i limit, __m256i bits) {
  const __m256 v = _mm256_floor_ps(_mm256_div_ps(_mm256_loadu_ps(g), divisor));
  const __m256i negative = _mm256_sub_epi32(_mm256_setzero_si256(), limit);
  const __m256i clamped =
      _mm256_max_epi32(negative, _mm256_min_epi32(limit, _mm256_cvttps_epi32(v)));
  return _mm256_srai_epi32(_mm256_add_epi32(clamped, _mm256_srli_epi32(bits, 8)), 24);
}

// 32 quantized elements as bytes in element order.
RUNNEL_AVX2_INLINE __m256i QuantizeThirtyTwo(const float* g, __m256 divisor, __m256i limit,
                                             Uniforms* uniforms) {
  __m256i u[4];
  uniforms->Draw(&u[0], &u[1]);
  uniforms->Draw(&u[2], &u[3]);
  const __m256i ab =
      _mm256_packs_epi32(Quantize(g, divisor, limit, u[0]), Quantize(g + 8, divisor, limit, u[1]));
  const __m256i cd = _mm256_packs_epi32(Quantize(g + 16, divisor, limit, u[2]),
                                        Quantize(g + 24, divisor, limit, u[3]));
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

RUNNEL_AVX2 void StochasticEncode8(const float* g, size_t n, float scale,
                                   const CounterRandom& random, std::byte* out) {
  if (scale < kSmallScale) return ScalarStochasticEncode8From(0, g, n, scale, random, out);
  const __m256 divisor = _mm256_set1_ps(scale * 0x1p-24f);
  const __m256i limit = _mm256_set1_epi32(127 << 24);
  Uniforms uniforms(random);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 32) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + e),
                        QuantizeThirtyTwo(g + e, divisor, limit, &uniforms));
  }
  ScalarStochasticEncode8From(main, g, n, scale, random, out);
}

RUNNEL_AVX2 void StochasticEncode4(const float* g, size_t n, float scale,
                                   const CounterRandom& random, std::byte* out) {
  if (scale < kSmallScale) return ScalarStochasticEncode4From(0, g, n, scale, random, out);
  const __m256 divisor = _mm256_set1_ps(scale * 0x1p-24f);
  const __m256i limit = _mm256_set1_epi32(7 << 24);
  Uniforms uniforms(random);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 32) {
    const __m256i q = QuantizeThirtyTwo(g + e, divisor, limit, &uniforms);
    const __m256i nibbles = _mm256_add_epi8(q, _mm256_set1_epi8(8));
    // 16 * even element + odd element.
    const __m256i pairs = _mm256_maddubs_epi16(nibbles, _mm256_set1_epi16(0x0110));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + e / 2), _mm256_castsi256_si128(packed));
  }
  ScalarStochasticEncode4From(main, g, n, scale, random, out);
}

RUNNEL_AVX2 void StochasticDecode8(const std::byte* q, size_t n, float scale, float* out) {
  const __m256 s = _mm256_set1_ps(scale);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q + e));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    _mm256_storeu_ps(out + e, _mm256_mul_ps(values, s));
  }
  ScalarStochasticDecode8From(main, q, n, scale, out);
}

RUNNEL_AVX2 void StochasticDecode4(const std::byte* q, size_t n, float scale, float* out) {
  const __m256 s = _mm256_set1_ps(scale);
  const __m256i low_four = _mm256_set1_epi32(15);
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 8) {
    int32_t word;
    std::memcpy(&word, q + e / 2, sizeof(word));
    const __m256i wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(word));
    const __m256i both = _mm256_or_si256(_mm256_srli_epi64(wide, 4), _mm256_slli_epi64(wide, 32));
    const __m256i value = _mm256_sub_epi32(_mm256_and_si256(both, low_four), _mm256_set1_epi32(8));
    _mm256_storeu_ps(out + e, _mm256_mul_ps(_mm256_cvtepi32_ps(value), s));
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

const CodecKernels kAvx2CodecKernels = {
    .name = "avx2",
    .isa = Isa::kAvx2,
    .max_abs_bits = MaxAbsBits,
    .mbq_encode =
        [](const float* x, size_t n, const MbqSearch& search, std::byte* planes, MbqSums* sums) {
          kEncode[search.k - 2][search.natural ? 1 : 0](x, n, search, planes, sums);
        },
    .mbq_decode = [](const std::byte* planes, size_t n, const MbqLevels& levels,
                     float* out) { kDecode[levels.k - 2](planes, n, levels, out); },
    .mark_outside = MarkOutside,
    .stochastic_encode8 = StochasticEncode8,
    .stochastic_encode4 = StochasticEncode4,
    .stochastic_decode8 = StochasticDecode8,
    .stochastic_decode4 = StochasticDecode4,
    .tile = &kAvx2TileKernels,
    .int8 = &kAvx2Int8Kernels,
};

}  // namespace runnel

#endif  // defined(__x86_64__)
