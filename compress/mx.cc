#include "compress/mx.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "proto/base/status_macros.h"

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

float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + kFloatBias) << 23);
}

// The code of a finite value / scale. A number of the format's normal range is FP32's with fewer
// bits of mantissa; below, adding a constant rounds to a multiple of the smallest number.
template <Format kFormat>
inline uint32_t CodeOf(float value) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t rounded =
      (magnitude + ((1u << (kDropped - 1)) - 1) + (magnitude >> kDropped & 1u)) >> kDropped;
  const float anchor =
      std::bit_cast<float>(static_cast<uint32_t>(kFloatBias + 1 - kFormat.bias + kDropped) << 23);
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + anchor) -
                         std::bit_cast<uint32_t>(anchor);
  const bool is_normal = magnitude >= static_cast<uint32_t>(kFloatBias + 1 - kFormat.bias) << 23;
  const uint32_t code = is_normal ? rounded - kFormat.normal_offset() : small;
  return std::min(code, kFormat.max_code) | (bits >> 31) << (kFormat.bits - 1);
}

template <Format kFormat>
inline float ValueOf(uint32_t code, float scale) {
  const uint32_t magnitude = code & kFormat.magnitude_mask();
  const uint32_t sign = code >> (kFormat.bits - 1) << 31;
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  constexpr auto kSmallest =
      static_cast<uint32_t>(kFloatBias + 1 - kFormat.bias - kFormat.mantissa_bits) << 23;
  const float normal = std::bit_cast<float>((magnitude + kFormat.normal_offset()) << kDropped);
  const float small =
      static_cast<float>(static_cast<int32_t>(magnitude)) * std::bit_cast<float>(kSmallest);
  const float value = magnitude >> kFormat.mantissa_bits != 0 ? normal : small;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign) * scale;
}

// Codes of a block, as bytes or as a string of bits.
template <int kBits>
void PackCodes(const uint32_t* codes, size_t count, std::byte* out) {
  uint64_t bits = 0;
  int held = 0;
  for (size_t i = 0; i < count; ++i) {
    bits |= uint64_t{codes[i]} << held;
    for (held += kBits; held >= 8; held -= 8, bits >>= 8) *out++ = static_cast<std::byte>(bits);
  }
  if (held > 0) *out = static_cast<std::byte>(bits);
}

template <int kBits>
void UnpackCodes(const std::byte* in, size_t count, uint32_t* codes) {
  uint64_t bits = 0;
  int held = 0;
  for (size_t i = 0; i < count; ++i) {
    for (; held < kBits; held += 8) bits |= std::to_integer<uint64_t>(*in++) << held;
    codes[i] = static_cast<uint32_t>(bits) & ((1u << kBits) - 1);
    bits >>= kBits;
    held -= kBits;
  }
}

template <Format kFormat>
void EncodeBlock(const float* x, size_t count, std::byte* out) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; ++i) {
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  }
  // Magnitudes below 2^-126 have an exponent field of 0 and a scale of 2^-127 anyway.
  const int exponent =
      std::max(static_cast<int>(most >> 23) - kFloatBias - kFormat.emax, -kFloatBias);
  const float inverse = PowerOfTwo(-exponent);
  uint32_t codes[kBlock];
  for (size_t i = 0; i < count; ++i) codes[i] = CodeOf<kFormat>(x[i] * inverse);
  *out = static_cast<std::byte>(exponent + kFloatBias);
  PackCodes<kFormat.bits>(codes, count, out + 1);
}

// The scale's byte has been checked. False: an element is NaN, or bits stand for no element.
template <Format kFormat>
bool DecodeBlock(const std::byte* in, size_t count, float* out) {
  const int exponent = std::to_integer<int>(*in) - kFloatBias;
  const float scale = exponent == -kFloatBias ? 0x1p-127f : PowerOfTwo(exponent);
  uint32_t codes[kBlock];
  UnpackCodes<kFormat.bits>(in + 1, count, codes);
  uint32_t most = 0;
  for (size_t i = 0; i < count; ++i) {
    most = std::max(most, codes[i] & kFormat.magnitude_mask());
    out[i] = ValueOf<kFormat>(codes[i], scale);
  }
  const size_t used = count * kFormat.bits % 8;
  const bool is_padded =
      used == 0 || std::to_integer<uint32_t>(in[count * kFormat.bits / 8 + 1]) >> used == 0;
  return most <= kFormat.max_code && is_padded;
}

struct Kind {
  Format format;
  void (*encode)(const float* x, size_t count, std::byte* out);
  bool (*decode)(const std::byte* in, size_t count, float* out);
};
template <Format kFormat>
constexpr Kind kKind = {kFormat, EncodeBlock<kFormat>, DecodeBlock<kFormat>};

const Kind& KindOf(int bits) {
  return bits == 4 ? kKind<kFp4> : bits == 6 ? kKind<kFp6> : kKind<kFp8>;
}

class MxEncoder final : public Encoder {
 public:
  MxEncoder(const Kind& kind, const CodecKernels& kernels) : kind_(kind), kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool, absl::Span<std::byte> payload) override {
    const int bits = kind_.format.bits;
    RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), MxBytes(bits, x.shape)));
    const auto n = static_cast<size_t>(x.shape.elements());
    if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
    std::byte* out = payload.data();
    for (size_t e = 0; e < n; e += kBlock, out += BlockBytes(kBlock, bits)) {
      kind_.encode(x.f32() + e, std::min(kBlock, n - e), out);
    }
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
  MxCodec(int bits, const CodecKernels& kernels) : kind_(KindOf(bits)), kernels_(kernels) {}

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
    const std::byte* in = payload.data();
    for (size_t e = 0; e < n; e += kBlock, in += BlockBytes(kBlock, kind_.format.bits)) {
      const auto scale = std::to_integer<int>(*in);
      if (scale > 2 * kFloatBias - kind_.format.emax) {
        return absl::InvalidArgumentError(
            absl::StrCat(name(), ": scale ", scale, " of block ", e / kBlock, " is impossible"));
      }
      if (!kind_.decode(in, std::min(kBlock, n - e), out.f32() + e)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name(), ": an element of block ", e / kBlock, " is impossible"));
      }
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

double MxNormalError(double bits) { return bits < 6 ? 0.01322 : bits < 8 ? 0.002931 : 0.0008769; }

}  // namespace runnel
