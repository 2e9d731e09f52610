#include "compress/mx.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "proto/base/status_macros.h"

// One text for all instruction sets: it becomes part of the function that is made for one.
#define RUNNEL_MX_INLINE __attribute__((always_inline)) static inline

namespace runnel {
namespace {

constexpr size_t kBlock = 32;
constexpr int kFloatBias = 127;  // also the scale's

// A format of elements: sign, exponent, mantissa.
struct Format {
  int bits;
  int mantissa_bits;
  int bias;
  int emax;           // exponent of the largest number
  uint32_t max_code;  // the largest number's, without sign

  constexpr uint32_t magnitude_mask() const { return (1u << (bits - 1)) - 1; }
  // The code that FP32's exponent field of the smallest normal number stands for.
  constexpr uint32_t normal_offset() const {
    return static_cast<uint32_t>(kFloatBias - bias) << mantissa_bits;
  }
};
constexpr Format kFp4 = {4, 1, 1, 2, 0x07};
constexpr Format kFp6 = {6, 2, 3, 4, 0x1F};
constexpr Format kFp8 = {8, 3, 7, 8, 0x7E};

constexpr size_t ElementBytes(size_t count, int bits) {
  return (count * static_cast<size_t>(bits) + 7) / 8;
}

constexpr size_t BlockBytes(size_t count, int bits) { return 1 + ElementBytes(count, bits); }

Bytes MxBytes(int bits, const Shape& shape) {
  const auto n = static_cast<size_t>(shape.elements());
  const size_t rest = n % kBlock;
  return Bytes(static_cast<int64_t>(n / kBlock * BlockBytes(kBlock, bits) +
                                    (rest > 0 ? BlockBytes(rest, bits) : 0)));
}

RUNNEL_MX_INLINE float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + kFloatBias) << 23);
}

// The code of a finite value / scale. A number of the format's normal range is FP32's with fewer
// bits of mantissa; below, adding a constant rounds to a multiple of the smallest number.
template <Format kFormat>
RUNNEL_MX_INLINE uint32_t CodeOf(float value) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t rounded =
      (magnitude + ((1u << (kDropped - 1)) - 1) + (magnitude >> kDropped & 1u)) >> kDropped;
  const float anchor =
      std::bit_cast<float>(static_cast<uint32_t>(kFloatBias + 1 - kFormat.bias + kDropped) << 23);
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + anchor) -
                         std::bit_cast<uint32_t>(anchor);
  // A mask, where a branch would be missed half of the time.
  const uint32_t is_normal =
      0u - static_cast<uint32_t>(magnitude >= static_cast<uint32_t>(kFloatBias + 1 - kFormat.bias)
                                                  << 23);
  const uint32_t code = ((rounded - kFormat.normal_offset()) & is_normal) | (small & ~is_normal);
  return (code < kFormat.max_code ? code : kFormat.max_code) | (bits >> 31) << (kFormat.bits - 1);
}

template <Format kFormat>
RUNNEL_MX_INLINE float ValueOf(uint32_t code, float scale) {
  const uint32_t magnitude = code & kFormat.magnitude_mask();
  const uint32_t sign = code >> (kFormat.bits - 1) << 31;
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  constexpr auto kSmallest =
      static_cast<uint32_t>(kFloatBias + 1 - kFormat.bias - kFormat.mantissa_bits) << 23;
  const float normal = std::bit_cast<float>((magnitude + kFormat.normal_offset()) << kDropped);
  const float small =
      static_cast<float>(static_cast<int32_t>(magnitude)) * std::bit_cast<float>(kSmallest);
  const uint32_t is_normal = 0u - static_cast<uint32_t>(magnitude >> kFormat.mantissa_bits != 0);
  const uint32_t value =
      (std::bit_cast<uint32_t>(normal) & is_normal) | (std::bit_cast<uint32_t>(small) & ~is_normal);
  return std::bit_cast<float>(value | sign) * scale;
}

// Codes of `count` elements as a string of bits.
template <int kBits>
RUNNEL_MX_INLINE void PackCodes(const uint8_t* codes, size_t count, std::byte* out) {
  uint64_t bits = 0;
  int held = 0;
  for (size_t i = 0; i < count; ++i) {
    bits |= uint64_t{codes[i]} << held;
    for (held += kBits; held >= 8; held -= 8, bits >>= 8) *out++ = static_cast<std::byte>(bits);
  }
  if (held > 0) *out = static_cast<std::byte>(bits);
}

template <int kBits>
RUNNEL_MX_INLINE void UnpackCodes(const std::byte* in, size_t count, uint8_t* codes) {
  uint64_t bits = 0;
  int held = 0;
  for (size_t i = 0; i < count; ++i) {
    for (; held < kBits; held += 8) bits |= std::to_integer<uint64_t>(*in++) << held;
    codes[i] = static_cast<uint8_t>(bits & ((1u << kBits) - 1));
    bits >>= kBits;
    held -= kBits;
  }
}

// The lowest `bits` of every `width` bits.
constexpr uint64_t LowBits(int width, int bits) {
  uint64_t mask = 0;
  for (int at = 0; at < 64; at += width) mask |= ((uint64_t{1} << bits) - 1) << at;
  return mask;
}

// The masks for fields of 8, 16 and 32 bits that hold one, two and four codes.
template <int kBits>
constexpr uint64_t kLow[3] = {LowBits(16, kBits), LowBits(32, 2 * kBits), LowBits(64, 4 * kBits)};

// The same of a whole block, eight codes at once: neighbours move together, then pairs, then fours.
template <int kBits>
RUNNEL_MX_INLINE void PackBlock(const uint8_t* codes, std::byte* out) {
  for (size_t i = 0; i < kBlock; i += 8, out += kBits) {
    uint64_t word;
    std::memcpy(&word, codes + i, sizeof(word));
#pragma GCC unroll 3
    for (int step = 0; step < 3; ++step) {
      const int width = 8 << step, bits = kBits << step;
      const uint64_t low = kLow<kBits>[step];
      word = (word & low) | (word >> (width - bits) & low << bits);
    }
    std::memcpy(out, &word, kBits);
  }
}

template <int kBits>
RUNNEL_MX_INLINE void UnpackBlock(const std::byte* in, uint8_t* codes) {
  for (size_t i = 0; i < kBlock; i += 8, in += kBits) {
    uint64_t word = 0;
    std::memcpy(&word, in, kBits);
#pragma GCC unroll 3
    for (int step = 2; step >= 0; --step) {
      const int width = 8 << step, bits = kBits << step;
      const uint64_t low = kLow<kBits>[step];
      word = (word & low) | (word << (width - bits) & low << width);
    }
    std::memcpy(codes + i, &word, sizeof(word));
  }
}

template <Format kFormat>
RUNNEL_MX_INLINE void EncodeBlock(const float* x, size_t count, std::byte* out) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu;
    most = magnitude > most ? magnitude : most;
  }
  // Magnitudes below 2^-126 have an exponent field of 0 and a scale of 2^-127 anyway.
  const int wanted = static_cast<int>(most >> 23) - kFloatBias - kFormat.emax;
  const int exponent = wanted > -kFloatBias ? wanted : -kFloatBias;
  const float inverse = PowerOfTwo(-exponent);
  uint8_t codes[kBlock];
  for (size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(CodeOf<kFormat>(x[i] * inverse));
  }
  *out = static_cast<std::byte>(exponent + kFloatBias);
  if (count == kBlock) {
    PackBlock<kFormat.bits>(codes, out + 1);
  } else {
    PackCodes<kFormat.bits>(codes, count, out + 1);
  }
}

template <Format kFormat>
RUNNEL_MX_INLINE void EncodeBlocks(const float* x, size_t n, std::byte* out) {
  for (; n >= kBlock; n -= kBlock, x += kBlock, out += BlockBytes(kBlock, kFormat.bits)) {
    EncodeBlock<kFormat>(x, kBlock, out);
  }
  if (n > 0) EncodeBlock<kFormat>(x, n, out);
}

// False: the scale is impossible, an element is NaN, or bits stand for no element.
template <Format kFormat>
RUNNEL_MX_INLINE bool DecodeBlock(const std::byte* in, size_t count, float* out) {
  const int exponent = std::to_integer<int>(*in) - kFloatBias;
  if (exponent > kFloatBias - kFormat.emax) return false;
  const float scale = exponent == -kFloatBias ? 0x1p-127f : PowerOfTwo(exponent);
  uint8_t codes[kBlock];
  if (count == kBlock) {
    UnpackBlock<kFormat.bits>(in + 1, codes);
  } else {
    UnpackCodes<kFormat.bits>(in + 1, count, codes);
    const size_t used = count * kFormat.bits % 8;
    const auto last = std::to_integer<uint32_t>(in[ElementBytes(count, kFormat.bits)]);
    if (used != 0 && last >> used != 0) return false;
  }
  uint32_t most = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = codes[i] & kFormat.magnitude_mask();
    most = magnitude > most ? magnitude : most;
    out[i] = ValueOf<kFormat>(codes[i], scale);
  }
  return most <= kFormat.max_code;
}

// The number of blocks before the first that is impossible.
template <Format kFormat>
RUNNEL_MX_INLINE size_t DecodeBlocks(const std::byte* in, size_t n, float* out) {
  size_t block = 0;
  for (; n >= kBlock; n -= kBlock, out += kBlock, in += BlockBytes(kBlock, kFormat.bits)) {
    if (!DecodeBlock<kFormat>(in, kBlock, out)) return block;
    ++block;
  }
  return n > 0 && DecodeBlock<kFormat>(in, n, out) ? block + 1 : block;
}

struct Kind {
  Format format;
  void (*encode)(const float* x, size_t n, std::byte* out);
  size_t (*decode)(const std::byte* in, size_t n, float* out);
};

template <Format kFormat>
void EncodePortable(const float* x, size_t n, std::byte* out) {
  EncodeBlocks<kFormat>(x, n, out);
}
template <Format kFormat>
size_t DecodePortable(const std::byte* in, size_t n, float* out) {
  return DecodeBlocks<kFormat>(in, n, out);
}
template <Format kFormat>
constexpr Kind kPortable = {kFormat, EncodePortable<kFormat>, DecodePortable<kFormat>};

#if defined(__x86_64__)
// The same text with wider vectors; AVX-512 machines take it too.
template <Format kFormat>
__attribute__((target("avx2"))) void EncodeAvx2(const float* x, size_t n, std::byte* out) {
  EncodeBlocks<kFormat>(x, n, out);
}
template <Format kFormat>
__attribute__((target("avx2"))) size_t DecodeAvx2(const std::byte* in, size_t n, float* out) {
  return DecodeBlocks<kFormat>(in, n, out);
}
template <Format kFormat>
constexpr Kind kAvx2 = {kFormat, EncodeAvx2<kFormat>, DecodeAvx2<kFormat>};
#endif

template <Format kFormat>
const Kind& KindOn([[maybe_unused]] const CodecKernels& kernels) {
#if defined(__x86_64__)
  if (kernels.isa != Isa::kPortable) return kAvx2<kFormat>;
#endif
  return kPortable<kFormat>;
}

const Kind& KindOf(int bits, const CodecKernels& kernels) {
  return bits == 4   ? KindOn<kFp4>(kernels)
         : bits == 6 ? KindOn<kFp6>(kernels)
                     : KindOn<kFp8>(kernels);
}

class MxEncoder final : public Encoder {
 public:
  MxEncoder(const Kind& kind, const CodecKernels& kernels) : kind_(kind), kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool, absl::Span<std::byte> payload) override {
    const int bits = kind_.format.bits;
    RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), MxBytes(bits, x.shape)));
    const auto n = static_cast<size_t>(x.shape.elements());
    if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
    kind_.encode(x.f32(), n, payload.data());
    return absl::OkStatus();
  }

  std::string SaveState() const override { return ""; }
  absl::Status RestoreState(absl::string_view state) override { return CheckNoState(state); }

 private:
  const Kind& kind_;
  const CodecKernels& kernels_;
};

class MxCodec final : public Codec {
 public:
  MxCodec(int bits, const CodecKernels& kernels)
      : kind_(KindOf(bits, kernels)), kernels_(kernels) {}

  std::string name() const override { return absl::StrCat("mx:fp", kind_.format.bits); }
  Bytes EncodedBytes(const Shape& shape) const override {
    return MxBytes(kind_.format.bits, shape);
  }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey&) const override {
    return std::make_unique<MxEncoder>(kind_, kernels_);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), EncodedBytes(out.shape), out));
    const auto n = static_cast<size_t>(out.shape.elements());
    const size_t good = kind_.decode(payload.data(), n, out.f32());
    if (good < (n + kBlock - 1) / kBlock) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ": scale or an element of block ", good, " is impossible"));
    }
    return absl::OkStatus();
  }

 private:
  const Kind& kind_;
  const CodecKernels& kernels_;
};

}  // namespace

std::unique_ptr<const Codec> MakeMxCodec(int bits, const CodecKernels& kernels) {
  return std::make_unique<MxCodec>(bits, kernels);
}

}  // namespace runnel
