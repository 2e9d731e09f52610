// NEON rows of the codecs' inner loops: 64 elements a step, the scalar loops finish.

#if defined(__aarch64__)

#include <arm_neon.h>

#include <bit>
#include <cstring>

#include "compress/bit_pack.h"
#include "compress/kernels/codec_kernels.h"
#include "compress/stochastic_rounding.h"

namespace runnel {
namespace {

constexpr size_t kStep = 64;

uint32_t MaxAbsBits(const float* x, size_t n) {
  const uint32x4_t magnitude = vdupq_n_u32(0x7FFFFFFFu);
  uint32x4_t largest[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
  const size_t main = n & ~(kStep - 1);
  for (size_t e = 0; e < main; e += 16) {
    for (size_t i = 0; i < 4; ++i) {
      const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + e + 4 * i));
      largest[i] = vmaxq_u32(largest[i], vandq_u32(bits, magnitude));
    }
  }
  const uint32x4_t all =
      vmaxq_u32(vmaxq_u32(largest[0], largest[1]), vmaxq_u32(largest[2], largest[3]));
  return ScalarMaxAbsBitsFrom(main, x, n, vmaxvq_u32(all));
}

// ---- bits and bytes

// 16 masks of 32 bits, all ones or 0, as bytes.
inline uint8x16_t Narrow(const uint32x4_t* masks) {
  const uint16x8_t low = vcombine_u16(vmovn_u32(masks[0]), vmovn_u32(masks[1]));
  const uint16x8_t high = vcombine_u16(vmovn_u32(masks[2]), vmovn_u32(masks[3]));
  return vcombine_u8(vmovn_u16(low), vmovn_u16(high));
}

// 64 bytes that are all ones or 0 as 64 bits. `weights`: of the eight elements of a byte.
inline uint8x8_t Bits(const uint8x16_t* bytes, uint8x16_t weights) {
  uint8x16_t part[4];
  for (size_t i = 0; i < 4; ++i) part[i] = vandq_u8(bytes[i], weights);
  const uint8x16_t four = vpaddq_u8(vpaddq_u8(part[0], part[1]), vpaddq_u8(part[2], part[3]));
  return vget_low_u8(vpaddq_u8(four, four));
}

constexpr uint8_t kFirstIsTop[16] = {128, 64, 32, 16, 8, 4, 2, 1, 128, 64, 32, 16, 8, 4, 2, 1};
constexpr uint8_t kFirstIsLow[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

// Repeats each of two bytes eight times: bytes 2i and 2i + 1 of eight.
inline uint8x16_t Spread(uint8x8_t eight, size_t i) {
  const auto first = static_cast<uint8_t>(2 * i);
  const uint8x16_t index =
      vcombine_u8(vdup_n_u8(first), vdup_n_u8(static_cast<uint8_t>(first + 1)));
  return vqtbl1q_u8(vcombine_u8(eight, eight), index);
}

int64_t MarkOutside(const float* x, size_t n, float low, float high, std::byte* below,
                    std::byte* above) {
  const float32x4_t lows = vdupq_n_f32(low), highs = vdupq_n_f32(high);
  const uint8x16_t weights = vld1q_u8(kFirstIsLow);
  const size_t main = n & ~(kStep - 1);
  int64_t outside = 0;
  for (size_t e = 0; e < main; e += kStep) {
    uint8x16_t is_below[4], is_above[4];
    for (size_t i = 0; i < 4; ++i) {
      uint32x4_t less[4], more[4];
      for (size_t j = 0; j < 4; ++j) {
        const float32x4_t values = vld1q_f32(x + e + 16 * i + 4 * j);
        less[j] = vcltq_f32(values, lows);
        more[j] = vcgtq_f32(values, highs);
      }
      is_below[i] = Narrow(less);
      is_above[i] = Narrow(more);
    }
    const uint8x8_t b = Bits(is_below, weights), a = Bits(is_above, weights);
    vst1_u8(reinterpret_cast<uint8_t*>(below + e / 8), b);
    vst1_u8(reinterpret_cast<uint8_t*>(above + e / 8), a);
    outside += vaddv_u8(vcnt_u8(vorr_u8(a, b)));
  }
  return outside + ScalarMarkOutsideFrom(main, x, n, low, high, below, above);
}

// ---- multi-bit quantization

// Codes of 16 elements as bytes.
template <int K>
inline uint8x16_t CodesOf(const float* x, const MbqSearch& search) {
  uint8x16_t ranks;
  if constexpr (K <= 4) {
    // Counts the thresholds below an element: a comparison that holds is -1.
    uint32x4_t count[4];
    float32x4_t values[4];
    for (size_t j = 0; j < 4; ++j) {
      count[j] = vdupq_n_u32(0);
      values[j] = vld1q_f32(x + 4 * j);
    }
    for (int node = 1; node < (1 << K); ++node) {
      const float32x4_t threshold = vdupq_n_f32(search.tree[static_cast<size_t>(node)]);
      for (size_t j = 0; j < 4; ++j) {
        count[j] = vsubq_u32(count[j], vcgtq_f32(values[j], threshold));
      }
    }
    ranks = Narrow(count);
    if (search.natural) return ranks;
    uint8_t table[16] = {};
    for (int rank = 0; rank < (1 << K); ++rank) {
      table[rank] = static_cast<uint8_t>(search.code_of_rank[static_cast<size_t>(rank)]);
    }
    return vqtbl1q_u8(vld1q_u8(table), ranks);
  } else {
    // Down the search tree, element by element: there is no gather.
    uint8_t codes[16];
    for (size_t e = 0; e < 16; ++e) {
      size_t prefix = 0;
      for (int level = 0; level < K; ++level) {
        prefix = 2 * prefix + (x[e] > search.tree[(size_t{1} << level) + prefix] ? 1 : 0);
      }
      codes[e] = static_cast<uint8_t>(search.code_of_rank[prefix]);
    }
    return vld1q_u8(codes);
  }
}

// Adds the 64 elements whose mask is all ones to their lanes; the others add 0.0, which changes no
// lane (none is ever -0.0).
inline void AddMasked(const float* x, const uint8x16_t* masks, double* lanes) {
  float64x2_t sums[8];
  for (size_t i = 0; i < 8; ++i) sums[i] = vld1q_f64(lanes + 2 * i);
  for (size_t part = 0; part < 4; ++part) {
    const int8x16_t bytes = vreinterpretq_s8_u8(masks[part]);
    const int16x8_t half[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))};
    for (size_t j = 0; j < 4; ++j) {
      const int16x4_t four = j % 2 == 0 ? vget_low_s16(half[j / 2]) : vget_high_s16(half[j / 2]);
      const uint32x4_t keep = vreinterpretq_u32_s32(vmovl_s16(four));
      const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + 16 * part + 4 * j));
      const float32x4_t kept = vreinterpretq_f32_u32(vandq_u32(bits, keep));
      sums[2 * j] = vaddq_f64(sums[2 * j], vcvt_f64_f32(vget_low_f32(kept)));
      sums[2 * j + 1] = vaddq_f64(sums[2 * j + 1], vcvt_high_f64_f32(kept));
    }
  }
  for (size_t i = 0; i < 8; ++i) vst1q_f64(lanes + 2 * i, sums[i]);
}

template <int K>
void MbqEncode(const float* x, size_t n, const MbqSearch& search, std::byte* planes,
               MbqSums* sums) {
  *sums = MbqSums();
  const uint8x16_t weights = vld1q_u8(kFirstIsTop);
  const uint8x16_t all = vdupq_n_u8(0xFF);
  const uint8x16_t every[4] = {all, all, all, all};
  const size_t stride = PlaneBytes(n);
  const size_t main = n & ~(kStep - 1);
  for (size_t e = 0; e < main; e += kStep) {
    uint8x16_t codes[4];
    for (size_t i = 0; i < 4; ++i) codes[i] = CodesOf<K>(x + e + 16 * i, search);
    AddMasked(x + e, every, sums->x.data());
    uint64_t words[K];
    for (size_t i = 0; i < K; ++i) {
      uint8x16_t set[4];
      const uint8x16_t bit = vdupq_n_u8(static_cast<uint8_t>(1u << (K - 1 - i)));
      for (size_t part = 0; part < 4; ++part) set[part] = vtstq_u8(codes[part], bit);
      AddMasked(x + e, set, sums->ones_x[i].data());
      const uint8x8_t packed = Bits(set, weights);
      vst1_u8(reinterpret_cast<uint8_t*>(planes + i * stride + e / 8), packed);
      words[i] = vget_lane_u64(vreinterpret_u64_u8(packed), 0);
    }
    for (size_t i = 0; i < K; ++i) {
      sums->ones[i] += std::popcount(words[i]);
      for (size_t j = i + 1; j < K; ++j) sums->differ[i][j] += std::popcount(words[i] ^ words[j]);
    }
  }
  ScalarMbqEncodeFrom(main, x, n, search, planes, sums);
}

template <int K>
void MbqDecode(const std::byte* planes, size_t n, const MbqLevels& levels, float* out) {
  const uint8x16_t weights = vld1q_u8(kFirstIsTop);
  const size_t stride = PlaneBytes(n);
  const size_t main = n & ~(kStep - 1);
  uint8x16x4_t table = {};
  std::memcpy(&table, levels.value.data(), sizeof(table));  // 16 floats
  for (size_t e = 0; e < main; e += kStep) {
    uint8x16_t codes[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
    for (size_t i = 0; i < K; ++i) {
      const uint8x8_t bytes =
          vld1_u8(reinterpret_cast<const uint8_t*>(planes + i * stride + e / 8));
      const uint8x16_t bit = vdupq_n_u8(static_cast<uint8_t>(1u << (K - 1 - i)));
      for (size_t part = 0; part < 4; ++part) {
        const uint8x16_t set = vtstq_u8(Spread(bytes, part), weights);
        codes[part] = vorrq_u8(codes[part], vandq_u8(set, bit));
      }
    }
    if constexpr (K <= 4) {
      for (size_t part = 0; part < 4; ++part) {
        // The four bytes of a float: 4 code + 0..3.
        const uint8x16_t first = vshlq_n_u8(codes[part], 2);
        const uint8x16x2_t twice = vzipq_u8(first, first);
        for (size_t half = 0; half < 2; ++half) {
          const uint8x16x2_t four = vzipq_u8(twice.val[half], twice.val[half]);
          const uint8x16_t offset = vreinterpretq_u8_u32(vdupq_n_u32(0x03020100u));
          for (size_t quarter = 0; quarter < 2; ++quarter) {
            const uint8x16_t value = vqtbl4q_u8(table, vorrq_u8(four.val[quarter], offset));
            vst1q_f32(out + e + 16 * part + 8 * half + 4 * quarter, vreinterpretq_f32_u8(value));
          }
        }
      }
    } else {
      uint8_t bytes[kStep];
      for (size_t part = 0; part < 4; ++part) vst1q_u8(bytes + 16 * part, codes[part]);
      for (size_t i = 0; i < kStep; ++i) out[e + i] = levels.value[bytes[i]];
    }
  }
  ScalarMbqDecodeFrom(main, planes, n, levels, out);
}

// ---- stochastic rounding

// One round of Philox4x32 on four blocks: word j of each in c[j].
struct Blocks {
  uint32x4_t c[4];
};

inline uint32x4_t High(uint64x2_t low_pair, uint64x2_t high_pair) {
  return vuzp2q_u32(vreinterpretq_u32_u64(low_pair), vreinterpretq_u32_u64(high_pair));
}
inline uint32x4_t Low(uint64x2_t low_pair, uint64x2_t high_pair) {
  return vuzp1q_u32(vreinterpretq_u32_u64(low_pair), vreinterpretq_u32_u64(high_pair));
}

inline Blocks Philox(const CounterRandom& random, uint32_t first) {
  const uint32_t lanes[4] = {0, 1, 2, 3};
  Blocks b = {{vaddq_u32(vdupq_n_u32(first), vld1q_u32(lanes)), vdupq_n_u32(0),
               vdupq_n_u32(random.sequence_words()[0]), vdupq_n_u32(random.sequence_words()[1])}};
  uint32_t k0 = random.key()[0], k1 = random.key()[1];
  for (int round = 0; round < 7; ++round) {
    const uint64x2_t p0a = vmull_n_u32(vget_low_u32(b.c[0]), 0xD2511F53u);
    const uint64x2_t p0b = vmull_n_u32(vget_high_u32(b.c[0]), 0xD2511F53u);
    const uint64x2_t p1a = vmull_n_u32(vget_low_u32(b.c[2]), 0xCD9E8D57u);
    const uint64x2_t p1b = vmull_n_u32(vget_high_u32(b.c[2]), 0xCD9E8D57u);
    b.c[0] = veorq_u32(veorq_u32(High(p1a, p1b), b.c[1]), vdupq_n_u32(k0));
    b.c[1] = Low(p1a, p1b);
    b.c[2] = veorq_u32(veorq_u32(High(p0a, p0b), b.c[3]), vdupq_n_u32(k1));
    b.c[3] = Low(p0a, p0b);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return b;
}

// StochasticQuantize of 16 elements as bytes; divisor is scale * 2^-24.
inline int8x16_t QuantizeSixteen(const float* g, size_t element, float divisor, int32_t limit,
                                 const CounterRandom& random) {
  const Blocks b = Philox(random, static_cast<uint32_t>(element / 4));
  // Element 4i + j is word j of block i: loading with four strides exchanges the two.
  float32x4x4_t values = vld4q_f32(g + element);
  const float bound = static_cast<float>(limit) * 0x1p24f;
  int32x4_t q[4];
  for (size_t j = 0; j < 4; ++j) {
    const float32x4_t quotient = vdivq_f32(values.val[j], vdupq_n_f32(divisor));
    const float32x4_t held =
        vmaxq_f32(vdupq_n_f32(-bound), vminq_f32(vdupq_n_f32(bound), quotient));
    const int32x4_t fixed = vcvtq_s32_f32(vrndmq_f32(held));
    const int32x4_t u24 = vreinterpretq_s32_u32(vshrq_n_u32(b.c[j], 8));
    q[j] = vshrq_n_s32(vaddq_s32(fixed, u24), 24);
  }
  // Back to element order.
  const int32x4x2_t a = vzipq_s32(q[0], q[2]), c = vzipq_s32(q[1], q[3]);
  const int32x4x2_t low = vzipq_s32(a.val[0], c.val[0]), high = vzipq_s32(a.val[1], c.val[1]);
  const int16x8_t first = vcombine_s16(vmovn_s32(low.val[0]), vmovn_s32(low.val[1]));
  const int16x8_t second = vcombine_s16(vmovn_s32(high.val[0]), vmovn_s32(high.val[1]));
  return vcombine_s8(vmovn_s16(first), vmovn_s16(second));
}

void StochasticEncode8(const float* g, size_t n, float scale, const CounterRandom& random,
                       std::byte* out) {
  const size_t main = scale < kSmallScale ? 0 : n & ~(kStep - 1);
  for (size_t e = 0; e < main; e += 16) {
    vst1q_s8(reinterpret_cast<int8_t*>(out + e),
             QuantizeSixteen(g, e, scale * 0x1p-24f, 127, random));
  }
  ScalarStochasticEncode8From(main, g, n, scale, random, out);
}

void StochasticEncode4(const float* g, size_t n, float scale, const CounterRandom& random,
                       std::byte* out) {
  const size_t main = scale < kSmallScale ? 0 : n & ~(kStep - 1);
  for (size_t e = 0; e < main; e += 16) {
    const int8x16_t q = QuantizeSixteen(g, e, scale * 0x1p-24f, 7, random);
    const uint8x16_t nibbles = vreinterpretq_u8_s8(vaddq_s8(q, vdupq_n_s8(8)));
    const uint8x16_t even = vuzp1q_u8(nibbles, nibbles), odd = vuzp2q_u8(nibbles, nibbles);
    vst1_u8(reinterpret_cast<uint8_t*>(out + e / 2),
            vget_low_u8(vorrq_u8(vshlq_n_u8(even, 4), odd)));
  }
  ScalarStochasticEncode4From(main, g, n, scale, random, out);
}

// 16 codes times the scale.
inline void StoreScaled(int8x16_t codes, float scale, float* out) {
  const int16x8_t half[2] = {vmovl_s8(vget_low_s8(codes)), vmovl_s8(vget_high_s8(codes))};
  for (size_t i = 0; i < 4; ++i) {
    const int16x4_t four = i % 2 == 0 ? vget_low_s16(half[i / 2]) : vget_high_s16(half[i / 2]);
    vst1q_f32(out + 4 * i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(four)), scale));
  }
}

void StochasticDecode8(const std::byte* q, size_t n, float scale, float* out) {
  const size_t main = n & ~(kStep - 1);
  for (size_t e = 0; e < main; e += 16) {
    StoreScaled(vld1q_s8(reinterpret_cast<const int8_t*>(q + e)), scale, out + e);
  }
  ScalarStochasticDecode8From(main, q, n, scale, out);
}

void StochasticDecode4(const std::byte* q, size_t n, float scale, float* out) {
  const size_t main = n & ~(kStep - 1);
  for (size_t e = 0; e < main; e += 16) {
    const uint8x8_t bytes = vld1_u8(reinterpret_cast<const uint8_t*>(q + e / 2));
    const uint8x8x2_t pairs = vzip_u8(vshr_n_u8(bytes, 4), vand_u8(bytes, vdup_n_u8(15)));
    const int8x16_t codes = vreinterpretq_s8_u8(vcombine_u8(pairs.val[0], pairs.val[1]));
    StoreScaled(vsubq_s8(codes, vdupq_n_s8(8)), scale, out + e);
  }
  ScalarStochasticDecode4From(main, q, n, scale, out);
}

using EncodeFn = void (*)(const float*, size_t, const MbqSearch&, std::byte*, MbqSums*);
using DecodeFn = void (*)(const std::byte*, size_t, const MbqLevels&, float*);

constexpr EncodeFn kEncode[kMaxMbqBits - 1] = {MbqEncode<2>, MbqEncode<3>, MbqEncode<4>,
                                               MbqEncode<5>, MbqEncode<6>, MbqEncode<7>,
                                               MbqEncode<8>};
constexpr DecodeFn kDecode[kMaxMbqBits - 1] = {MbqDecode<2>, MbqDecode<3>, MbqDecode<4>,
                                               MbqDecode<5>, MbqDecode<6>, MbqDecode<7>,
                                               MbqDecode<8>};

}  // namespace

const CodecKernels kNeonCodecKernels = {
    .name = "neon",
    .isa = Isa::kNeon,
    .max_abs_bits = MaxAbsBits,
    .mbq_encode = [](const float* x, size_t n, const MbqSearch& search, std::byte* planes,
                     MbqSums* sums) { kEncode[search.k - 2](x, n, search, planes, sums); },
    .mbq_decode = [](const std::byte* planes, size_t n, const MbqLevels& levels,
                     float* out) { kDecode[levels.k - 2](planes, n, levels, out); },
    .mark_outside = MarkOutside,
    .stochastic_encode8 = StochasticEncode8,
    .stochastic_encode4 = StochasticEncode4,
    .stochastic_decode8 = StochasticDecode8,
    .stochastic_decode4 = StochasticDecode4,
    .tile = &kNeonTileKernels,
    .int8 = &kNeonInt8Kernels,
};

}  // namespace runnel

#endif  // defined(__aarch64__)
