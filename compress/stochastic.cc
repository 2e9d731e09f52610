#include "compress/stochastic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "compress/codec_checks.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kHeaderBytes = sizeof(float);

// Constants of one of the two widths.
struct Width {
  int bits;
  float limit;      // largest |q| that an encoder sends
  float max_scale;  // the most negative code, -(limit + 1), stays finite: a power of two below
  std::byte zeros;  // a byte full of elements that are zero
};
constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr Width kEight = {8, 127.0f, kMaxFloat / 128.0f, std::byte{0}};
constexpr Width kFour = {4, 7.0f, kMaxFloat / 8.0f, std::byte{0x88}};

const Width& WidthOf(int bits) { return bits == 8 ? kEight : kFour; }

size_t CodeBytes(const Width& width, size_t n) { return width.bits == 8 ? n : NibbleBytes(n); }

Bytes StochasticBytes(const Width& width, const Shape& shape) {
  return Bytes(static_cast<int64_t>(kHeaderBytes + CodeBytes(width, shape.elements())));
}

void FillZeros(const Width& width, size_t n, std::byte* codes) {
  std::fill(codes, codes + CodeBytes(width, n), width.zeros);
  if (width.bits == 4 && n % 2 == 1) codes[n / 2] = std::byte{0x80};
}

class StochasticEncoder final : public Encoder {
 public:
  StochasticEncoder(const Width& width, const CodecKernels& kernels, const EncoderKey& key)
      : width_(width), kernels_(kernels), key_(key) {}

  absl::Status Encode(const TensorView& x, Sequence sequence, bool /*restart*/,
                      absl::Span<std::byte> payload) override {
    RUNNEL_RETURN_IF_ERROR(
        CheckEncodeArguments(x, payload.size(), StochasticBytes(width_, x.shape)));
    const auto n = static_cast<size_t>(x.shape.elements());
    const uint32_t max_bits = kernels_.max_abs_bits(x.f32(), n);
    if (max_bits >= kInfinityBits) return NonFiniteError(x.f32(), n);
    const float scale = std::min(std::bit_cast<float>(max_bits) / width_.limit, width_.max_scale);
    StoreFloat(scale, payload.data());
    std::byte* codes = payload.data() + kHeaderBytes;
    if (scale == 0.0f) {
      FillZeros(width_, n, codes);
      return absl::OkStatus();
    }
    const CounterRandom random(key_.run_seed, key_.purpose, key_.boundary,
                               static_cast<uint64_t>(sequence.value()));
    const auto encode =
        width_.bits == 8 ? kernels_.stochastic_encode8 : kernels_.stochastic_encode4;
    encode(x.f32(), n, scale, random, codes);
    return absl::OkStatus();
  }

  std::string SaveState() const override { return ""; }
  absl::Status RestoreState(absl::string_view state) override { return CheckNoState(state); }

 private:
  const Width& width_;
  const CodecKernels& kernels_;
  const EncoderKey key_;
};

class StochasticCodec final : public Codec {
 public:
  StochasticCodec(int bits, const CodecKernels& kernels)
      : width_(WidthOf(bits)), kernels_(kernels) {}

  std::string name() const override { return absl::StrCat("stochastic:", width_.bits); }
  Bytes EncodedBytes(const Shape& shape) const override { return StochasticBytes(width_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<StochasticEncoder>(width_, kernels_, key);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    RUNNEL_RETURN_IF_ERROR(
        CheckDecodeArguments(payload.size(), StochasticBytes(width_, out.shape), out));
    const auto n = static_cast<size_t>(out.shape.elements());
    const float scale = LoadFloat(payload.data());
    if (std::signbit(scale) || !(scale <= width_.max_scale)) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ": scale ", scale, " is impossible"));
    }
    const std::byte* codes = payload.data() + kHeaderBytes;
    if (width_.bits == 4 && n % 2 == 1 && (codes[n / 2] & std::byte{0x0F}) != std::byte{0}) {
      return absl::InvalidArgumentError("stochastic:4: the unused nibble is not 0");
    }
    const auto decode =
        width_.bits == 8 ? kernels_.stochastic_decode8 : kernels_.stochastic_decode4;
    decode(codes, n, scale, out.f32());
    return absl::OkStatus();
  }

 private:
  const Width& width_;
  const CodecKernels& kernels_;
};

}  // namespace

std::unique_ptr<const Codec> MakeStochasticCodec(int bits, const CodecKernels& kernels) {
  return std::make_unique<StochasticCodec>(bits, kernels);
}

}  // namespace runnel
