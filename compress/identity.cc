#include "compress/identity.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compress/codec_checks.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian FP32");

// Copies n floats. `tensor` is the aligned side, `from` or `to`; it is checked piece by piece while
// the first-level cache holds it.
absl::Status CopyFinite(const CodecKernels& kernels, const std::byte* from, std::byte* to,
                        const float* tensor, size_t n) {
  constexpr size_t kPiece = 2048;
  for (size_t base = 0; base < n; base += kPiece) {
    const size_t count = std::min(kPiece, n - base);
    std::memcpy(to + base * sizeof(float), from + base * sizeof(float), count * sizeof(float));
    if (kernels.max_abs_bits(tensor + base, count) >= kInfinityBits) {
      return NonFiniteError(tensor, n);
    }
  }
  return absl::OkStatus();
}

Bytes IdentityBytes(const Shape& shape) {
  return Bytes(shape.elements() * static_cast<int64_t>(sizeof(float)));
}

class IdentityEncoder final : public Encoder {
 public:
  explicit IdentityEncoder(const CodecKernels& kernels) : kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool, absl::Span<std::byte> payload) override {
    RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), IdentityBytes(x.shape)));
    return CopyFinite(kernels_, x.bytes.data(), payload.data(), x.f32(), x.shape.elements());
  }

  std::string SaveState() const override { return ""; }
  absl::Status RestoreState(absl::string_view state) override { return CheckNoState(state); }

 private:
  const CodecKernels& kernels_;
};

class IdentityCodec final : public Codec {
 public:
  explicit IdentityCodec(const CodecKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return "identity"; }
  Bytes EncodedBytes(const Shape& shape) const override { return IdentityBytes(shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey&) const override {
    return std::make_unique<IdentityEncoder>(kernels_);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), IdentityBytes(out.shape), out));
    return CopyFinite(kernels_, payload.data(), out.bytes.data(), out.f32(), out.shape.elements());
  }

 private:
  const CodecKernels& kernels_;
};

}  // namespace

std::unique_ptr<const Codec> MakeIdentityCodec(const CodecKernels& kernels) {
  return std::make_unique<IdentityCodec>(kernels);
}

}  // namespace runnel
