#include "compress/int8.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "proto/base/model/number_format.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/quantize.h"

namespace runnel {
namespace {

constexpr size_t kHeaderBytes = sizeof(int32_t);
constexpr std::byte kNoMantissa{0x80};  // -128

Bytes Int8Bytes(const Shape& shape) {
  return Bytes(static_cast<int64_t>(kHeaderBytes) + shape.elements());
}

// True if one of eight bytes is 0x80.
bool HasNoMantissa(const std::byte* bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  constexpr uint64_t kTops = 0x8080808080808080u;
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  word ^= kTops;  // a zero byte is looked for
  return ((word - kOnes) & ~word & kTops) != 0;
}

absl::Status NoMantissaError(size_t element) {
  return absl::InvalidArgumentError(absl::StrCat("int8: mantissa ", element, " is -128"));
}

// Copies n mantissas; InvalidArgument names the first that is -128.
absl::Status CopyMantissas(const std::byte* from, size_t n, std::byte* to) {
  constexpr size_t kWord = sizeof(uint64_t);
  size_t e = 0;
  while (e + kWord <= n && !HasNoMantissa(from + e)) {
    std::memcpy(to + e, from + e, kWord);
    e += kWord;
  }
  for (; e < n; ++e) {
    if (from[e] == kNoMantissa) {
      return NoMantissaError(e);
    }
    to[e] = from[e];
  }
  return absl::OkStatus();
}

// An exponent in a payload: of a scaled tensor, or of an FP32 one.
absl::Status CheckExponent(absl::Span<const std::byte> payload, const SideValue& row) {
  const absl::Status status = row.Check(payload.first(kHeaderBytes));
  return status.ok() ? status
                     : absl::InvalidArgumentError(absl::StrCat("int8: ", status.message()));
}

constexpr SideValue kFloatExponent = [] {
  SideValue row = kScaleExponent;
  row.least = kMinFloatExponent;
  row.most = kMaxFloatExponent;
  return row;
}();

class Int8Encoder final : public Encoder {
 public:
  explicit Int8Encoder(const CodecKernels& kernels) : kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool, absl::Span<std::byte> payload) override {
    const bool scaled = x.dtype == DType::kInt8;
    RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), Int8Bytes(x.shape),
                                                scaled ? DType::kInt8 : DType::kFloat32));
    const auto n = static_cast<size_t>(x.shape.elements());
    std::byte* mantissas = payload.data() + kHeaderBytes;
    if (scaled) {
      StoreInt32(x.exponent, payload.data());
      RUNNEL_RETURN_IF_ERROR(CheckExponent(payload, kScaleExponent));
      return CopyMantissas(x.bytes.data(), n, mantissas);
    }
    // Quantizes as Quantize does by kPowerOfTwo.
    const uint32_t most = kernels_.max_abs_bits(x.f32(), n);
    if (most >= kInfinityBits) return NonFiniteError(x.f32(), n);
    const int32_t exponent = most == 0 ? 0 : CeilLog2(std::bit_cast<float>(most)) - 7;
    kernels_.int8->encode(x.f32(), n, exponent, mantissas);
    StoreInt32(exponent, payload.data());
    return absl::OkStatus();
  }

  std::string SaveState() const override { return ""; }
  absl::Status RestoreState(absl::string_view state) override { return CheckNoState(state); }

 private:
  const CodecKernels& kernels_;
};

class Int8Codec final : public Codec {
 public:
  explicit Int8Codec(const CodecKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return "int8"; }
  bool takes_scaled() const override { return true; }
  Bytes EncodedBytes(const Shape& shape) const override { return Int8Bytes(shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey&) const override {
    return std::make_unique<Int8Encoder>(kernels_);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), Int8Bytes(out.shape), out));
    RUNNEL_RETURN_IF_ERROR(CheckExponent(payload, kFloatExponent));
    const int32_t exponent = LoadInt32(payload.data());
    const auto n = static_cast<size_t>(out.shape.elements());
    const std::byte* mantissas = payload.data() + kHeaderBytes;
    if (!kernels_.int8->decode(mantissas, n, exponent, out.f32())) {
      const auto* impossible = std::find(mantissas, mantissas + n, kNoMantissa);
      return NoMantissaError(static_cast<size_t>(impossible - mantissas));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> DecodeScaled(absl::Span<const std::byte> payload, const Shape& shape,
                                       absl::Span<std::byte> mantissas) const override {
    const MutableTensorView out{DType::kInt8, shape, Layout::kRowMajor, 0, mantissas};
    RUNNEL_RETURN_IF_ERROR(
        CheckDecodeArguments(payload.size(), Int8Bytes(shape), out, DType::kInt8));
    RUNNEL_RETURN_IF_ERROR(CheckExponent(payload, kScaleExponent));
    const int32_t exponent = LoadInt32(payload.data());
    RUNNEL_RETURN_IF_ERROR(
        CopyMantissas(payload.data() + kHeaderBytes, mantissas.size(), mantissas.data()));
    return exponent;
  }

 private:
  const CodecKernels& kernels_;
};

}  // namespace

std::unique_ptr<const Codec> MakeInt8Codec(const CodecKernels& kernels) {
  return std::make_unique<Int8Codec>(kernels);
}

}  // namespace runnel
