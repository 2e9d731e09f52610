#include "compress/topk/topk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/float_state.h"
#include "compress/topk/kept_values.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kStateVersion = 1;

size_t KeptOf(double ratio, size_t n) {
  const double wanted = std::ceil(ratio * static_cast<double>(n));
  return std::clamp<size_t>(static_cast<size_t>(wanted), 1, n);
}

Bytes TopkBytes(const KeptValues& form, double ratio, const Shape& shape) {
  const auto n = static_cast<size_t>(shape.elements());
  return Bytes(form.bytes(n, KeptOf(ratio, n)));
}

class TopkEncoder final : public Encoder {
 public:
  TopkEncoder(const KeptValues& form, double ratio, const CodecKernels& kernels)
      : form_(form), ratio_(ratio), kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool restart,
                      absl::Span<std::byte> payload) override {
    RUNNEL_RETURN_IF_ERROR(
        CheckEncodeArguments(x, payload.size(), TopkBytes(form_, ratio_, x.shape)));
    const auto n = static_cast<size_t>(x.shape.elements());
    if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
    if (restart || residual_.size() != n) residual_.assign(n, 0.0f);
    constexpr float kMost = std::numeric_limits<float>::max();
    float* y = residual_.data();
    for (size_t e = 0; e < n; ++e) y[e] = std::clamp(y[e] + x.f32()[e], -kMost, kMost);
    const size_t k = KeptOf(ratio_, n);
    form_.write(FindTopkCut(y, n, k), n, k, y, payload.data());
    return absl::OkStatus();
  }

  std::string SaveState() const override { return SaveFloats(Tag(), residual_, Ratio()); }
  absl::Status RestoreState(absl::string_view state) override {
    RUNNEL_ASSIGN_OR_RETURN(
        residual_, RestoreFloats(absl::StrCat(form_.family, ":", ratio_), Tag(), state, Ratio()));
    return absl::OkStatus();
  }

 private:
  std::string Tag() const { return {'K', kStateVersion, form_.state_tag, 0}; }
  // The state's tail: of another ratio it is refused.
  std::string Ratio() const {
    std::string bytes;
    for (int i = 0; i < 8; ++i) {
      bytes.push_back(static_cast<char>(std::bit_cast<uint64_t>(ratio_) >> (8 * i)));
    }
    return bytes;
  }

  const KeptValues& form_;
  const double ratio_;
  const CodecKernels& kernels_;
  std::vector<float> residual_;  // empty before the first micro-batch
};

class TopkCodec final : public Codec {
 public:
  TopkCodec(const KeptValues& form, double ratio, const CodecKernels& kernels)
      : form_(form), ratio_(ratio), kernels_(kernels) {}

  std::string name() const override { return absl::StrCat(form_.family, ":", ratio_); }
  Bytes EncodedBytes(const Shape& shape) const override { return TopkBytes(form_, ratio_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey&) const override {
    return std::make_unique<TopkEncoder>(form_, ratio_, kernels_);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), EncodedBytes(out.shape), out));
    const auto n = static_cast<size_t>(out.shape.elements());
    const absl::Status read = form_.read(payload.data(), n, KeptOf(ratio_, n), out.f32());
    if (read.ok()) return read;
    return absl::InvalidArgumentError(absl::StrCat(name(), ": ", read.message()));
  }

 private:
  const KeptValues& form_;
  const double ratio_;
  const CodecKernels& kernels_;
};

}  // namespace

// From the top digit of the magnitude's 31 bits to the lowest: counts the values of the digit among
// the elements that agree with the cut in the digits above, and finds the one in which the k-th is.
TopkCut FindTopkCut(const float* x, size_t n, size_t k) {
  struct Digit {
    int shift;
    int bits;
  };
  constexpr Digit kDigits[] = {{20, 11}, {10, 10}, {0, 10}};
  TopkCut cut;
  cut.equal = k;
  for (const auto& [shift, bits] : kDigits) {
    size_t counts[size_t{1} << 11] = {};
    const uint32_t mask = (1u << bits) - 1;
    const int above = shift + bits;
    const uint32_t prefix = cut.magnitude >> above;  // at 31: 0, as of every magnitude
    for (size_t e = 0; e < n; ++e) {
      const uint32_t magnitude = MagnitudeOf(x[e]);
      if (magnitude >> above == prefix) ++counts[(magnitude >> shift) & mask];
    }
    uint32_t digit = mask;
    while (counts[digit] < cut.equal) cut.equal -= counts[digit--];
    cut.magnitude |= digit << shift;
  }
  return cut;
}

double TopkBits(double ratio) { return 32 * ratio + std::min(1.0, 32 * ratio); }

double Topk8Bits(double ratio) {
  return 8 * ratio - ratio * std::log2(ratio) - (1 - ratio) * std::log2(1 - ratio);
}

double TopkError(double ratio) { return std::pow(1 - std::pow(ratio, 0.56), 3.65); }

std::unique_ptr<const Codec> MakeTopkCodec(double ratio, const CodecKernels& kernels) {
  return std::make_unique<TopkCodec>(kExactValues, ratio, kernels);
}

std::unique_ptr<const Codec> MakeTopk8Codec(double ratio, const CodecKernels& kernels) {
  return std::make_unique<TopkCodec>(kCodedValues, ratio, kernels);
}

}  // namespace runnel
