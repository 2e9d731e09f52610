#include "compress/number_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kPiece = 2048;  // elements that the first-level cache holds

size_t HeaderBytes(const NumberType& type) { return type.bytes == 1 ? sizeof(float) : 0; }

Bytes EncodedBytesOf(const NumberType& type, const Shape& shape) {
  return Bytes(static_cast<int64_t>(HeaderBytes(type)) +
               shape.elements() * static_cast<int64_t>(type.bytes));
}

// The least power of two with which `largest` is a value of the type.
float ScaleOf(const NumberType& type, float largest) {
  if (HeaderBytes(type) == 0 || largest == 0) return 1;
  const int octave = std::ilogb(largest) - std::ilogb(type.largest);
  const float scale = std::ldexp(1.0f, std::max(octave, std::numeric_limits<float>::min_exponent));
  return largest / scale > type.largest ? 2 * scale : scale;
}

class NumberTypeEncoder final : public Encoder {
 public:
  NumberTypeEncoder(const NumberType& type, const CodecKernels& kernels)
      : type_(type), kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool, absl::Span<std::byte> payload) override {
    RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), EncodedBytesOf(type_, x.shape)));
    const auto n = static_cast<size_t>(x.shape.elements());
    const uint32_t largest_bits = kernels_.max_abs_bits(x.f32(), n);
    if (largest_bits >= kInfinityBits) return NonFiniteError(x.f32(), n);
    const float scale = ScaleOf(type_, std::bit_cast<float>(largest_bits));
    if (HeaderBytes(type_) > 0) StoreFloat(scale, payload.data());
    const float inverse = 1 / scale;
    const auto largest = static_cast<float>(type_.largest);
    payload.remove_prefix(HeaderBytes(type_));
    for (size_t base = 0; base < n; base += kPiece) {
      const size_t count = std::min(kPiece, n - base);
      float held[kPiece];
      for (size_t i = 0; i < count; ++i)
        held[i] = std::clamp(x.f32()[base + i] * inverse, -largest, largest);
      type_.from_float({held, count}, payload.subspan(base * type_.bytes, count * type_.bytes));
    }
    return absl::OkStatus();
  }

  std::string SaveState() const override { return ""; }
  absl::Status RestoreState(absl::string_view state) override { return CheckNoState(state); }

 private:
  const NumberType& type_;
  const CodecKernels& kernels_;
};

class NumberTypeCodec final : public Codec {
 public:
  NumberTypeCodec(absl::string_view family, const NumberType& type, const CodecKernels& kernels)
      : family_(family), type_(type), kernels_(kernels) {}

  std::string name() const override { return family_; }
  Bytes EncodedBytes(const Shape& shape) const override { return EncodedBytesOf(type_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey&) const override {
    return std::make_unique<NumberTypeEncoder>(type_, kernels_);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    RUNNEL_RETURN_IF_ERROR(
        CheckDecodeArguments(payload.size(), EncodedBytesOf(type_, out.shape), out));
    const auto n = static_cast<size_t>(out.shape.elements());
    const float scale = HeaderBytes(type_) > 0 ? LoadFloat(payload.data()) : 1;
    if (!std::isfinite(scale) || scale <= 0)
      return absl::InvalidArgumentError(absl::StrCat(family_, ": scale ", scale));
    payload.remove_prefix(HeaderBytes(type_));
    for (size_t base = 0; base < n; base += kPiece) {
      const size_t count = std::min(kPiece, n - base);
      float* const values = out.f32() + base;
      type_.to_float(payload.subspan(base * type_.bytes, count * type_.bytes), 0, {values, count});
      if (kernels_.max_abs_bits(values, count) >= kInfinityBits)
        return NonFiniteError(out.f32(), base + count);
      if (scale == 1) continue;
      // Near FP32's largest value the next one of the type is beyond it.
      constexpr float kMost = std::numeric_limits<float>::max();
      for (size_t i = 0; i < count; ++i) values[i] = std::clamp(values[i] * scale, -kMost, kMost);
    }
    return absl::OkStatus();
  }

 private:
  const std::string family_;
  const NumberType& type_;
  const CodecKernels& kernels_;
};

}  // namespace

std::unique_ptr<const Codec> MakeNumberTypeCodec(absl::string_view family, DType type,
                                                 const CodecKernels& kernels) {
  return std::make_unique<NumberTypeCodec>(family, TypeOf(type), kernels);
}

}  // namespace runnel
