// AVX-512 (F, BW, DQ, VL) row of the codecs' inner loops, and those of stochastic rounding. The
// scalar loops finish.

#if defined(__x86_64__)

#include "compress/kernels/codec_kernels_avx512.h"

#include <immintrin.h>

#include <cstring>

#include "compress/stochastic_rounding.h"

namespace runnel {
namespace {

RUNNEL_AVX512 uint32_t MaxAbsBits(const float* x, size_t n) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                        _mm512_setzero_si512()};
  const size_t main = n & ~size_t{63};
  for (size_t e = 0; e < main; e += 64) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      // The hardware's own prefetching stops at each page.
      _mm_prefetch(reinterpret_cast<const char*>(x + e + 16 * i) + 4096, _MM_HINT_T0);
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
  // Products of round 0. The first one is linear in the block: additions carry it along. The second
  // one is the same for all blocks.
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

// Writes 64 quantized elements, from `element` on, in one format.
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

RUNNEL_AVX512 int64_t MarkOutside(const float* x, size_t n, float low, float high, std::byte* below,
                                  std::byte* above) {
  const __m512 lows = _mm512_set1_ps(low), highs = _mm512_set1_ps(high);
  const size_t main = n & ~size_t{63};
  int64_t outside = 0;
  for (size_t e = 0; e < main; e += 16) {
    const __m512 values = _mm512_loadu_ps(x + e);
    const __mmask16 is_below = _mm512_cmp_ps_mask(values, lows, _CMP_LT_OQ);
    const __mmask16 is_above = _mm512_cmp_ps_mask(values, highs, _CMP_GT_OQ);
    std::memcpy(below + e / 8, &is_below, sizeof(is_below));
    std::memcpy(above + e / 8, &is_above, sizeof(is_above));
    outside += _mm_popcnt_u32(static_cast<uint32_t>(is_below | is_above));
  }
  return outside + ScalarMarkOutsideFrom(main, x, n, low, high, below, above);
}

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

}  // namespace

const CodecKernels kAvx512CodecKernels = {
    .name = "avx512",
    .isa = Isa::kAvx512,
    .max_abs_bits = MaxAbsBits,
    .mbq_encode = Avx512MbqEncode,
    .mbq_decode = Avx512MbqDecode,
    .mark_outside = MarkOutside,
    .stochastic_encode8 = StochasticEncode<AsInt8>,
    .stochastic_encode4 = StochasticEncode<AsNibbles>,
    .stochastic_decode8 = StochasticDecode8,
    .stochastic_decode4 = StochasticDecode4,
    .tile = &kAvx512TileKernels,
    .int8 = &kAvx512Int8Kernels,
};

}  // namespace runnel

#endif  // defined(__x86_64__)
