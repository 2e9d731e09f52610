#include "compress/mbq/learned.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "compress/codec_checks.h"
#include "compress/mbq/learned_encoder.h"
#include "compress/mbq/mbq.h"
#include "compress/mbq/mbq_math.h"
#include "compress/mbq/mbq_payload_codec.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kChunk = 64;  // elements whose codes are held at once
constexpr float kMaxFloat = std::numeric_limits<float>::max();

// ---- uniform

constexpr float kFirstScale = 0.25f;  // AccEPT 4.3.2
constexpr double kScaleRate = 0.01;
constexpr float kMinScale = 1e-8f;
constexpr float kMaxScale = 1e30f;
constexpr size_t kScaleBytes = sizeof(float);

Bytes UniformBytes(int k, const Shape& shape) {
  return Bytes(static_cast<int64_t>(kScaleBytes + k * PlaneBytes(shape.elements())));
}

// x / s rounded to the nearest of -half .. half - 1, as a code from 0 on.
uint8_t UniformCode(float x, float scale, float half) {
  const float q = std::floor(x / scale + 0.5f);
  return static_cast<uint8_t>(std::max(-half, std::min(half - 1, q)) + half);
}

class UniformEncoder final : public LearnedEncoder {
 public:
  UniformEncoder(int k, const EncoderKey& key)
      : LearnedEncoder('U', k, key), half_(static_cast<float>(1 << (k - 1))) {}

 private:
  Bytes PayloadBytes(const Shape& shape) const override { return UniformBytes(k(), shape); }
  Parameters Initial() const override { return {{kFirstScale}, {}}; }
  void Start(const float*, size_t, Parameters&) const override {}
  void Write(const float* x, size_t n, const Parameters& parameters,
             std::byte* payload) const override;
  std::vector<double> Derivatives(const float* gradient, const float* x, size_t n,
                                  const std::byte* payload) const override;
  bool Possible(const Parameters& parameters) const override {
    return parameters.values[0] >= kMinScale && parameters.values[0] <= kMaxScale;
  }
  void Step(const std::vector<double>& derivatives, Parameters& parameters) const override {
    const double moved = parameters.values[0] - kScaleRate * derivatives[0];
    parameters.values[0] = static_cast<float>(std::clamp<double>(moved, kMinScale, kMaxScale));
  }

  const float half_;
};

void UniformEncoder::Write(const float* x, size_t n, const Parameters& parameters,
                           std::byte* payload) const {
  const float scale = parameters.values[0];
  StoreFloat(scale, payload);
  std::array<uint8_t, kChunk> codes;
  for (size_t base = 0; base < n; base += kChunk) {
    const size_t count = std::min(kChunk, n - base);
    for (size_t e = 0; e < count; ++e) codes[e] = UniformCode(x[base + e], scale, half_);
    PackPlanes(codes.data(), count, k(), payload + kScaleBytes + base / 8, PlaneBytes(n));
  }
}

// Within the range d(q s)/ds = q - x / s, straight through the rounding; beyond it the bound.
std::vector<double> UniformEncoder::Derivatives(const float* gradient, const float* x, size_t n,
                                                const std::byte* payload) const {
  const float scale = LoadFloat(payload);
  double sum = 0;
  for (size_t e = 0; e < n; ++e) {
    const double v = static_cast<double>(x[e]) / scale;
    const double q = static_cast<double>(UniformCode(x[e], scale, half_)) - half_;
    const bool inside = v >= -half_ && v <= half_ - 1;
    sum += static_cast<double>(gradient[e]) * (inside ? q - v : q);
  }
  return {sum / std::sqrt(static_cast<double>(n) * half_)};
}

class UniformCodec final : public Codec {
 public:
  explicit UniformCodec(int k) : k_(k) {}
  std::string name() const override { return absl::StrCat("uniform:", k_); }
  Bytes EncodedBytes(const Shape& shape) const override { return UniformBytes(k_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<UniformEncoder>(k_, key);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override;

 private:
  const int k_;
};

absl::Status UniformCodec::Decode(absl::Span<const std::byte> payload,
                                  const MutableTensorView& out) const {
  RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), UniformBytes(k_, out.shape), out));
  const auto n = static_cast<size_t>(out.shape.elements());
  const float scale = LoadFloat(payload.data());
  if (!(scale >= kMinScale && scale <= kMaxScale)) {
    return absl::InvalidArgumentError(absl::StrCat(name(), ": scale ", scale, " is impossible"));
  }
  const std::byte* planes = payload.data() + kScaleBytes;
  const auto unused = static_cast<std::byte>(0xFFu >> (n % 8 == 0 ? 8 : n % 8));
  for (int i = 0; i < k_; ++i) {
    if ((planes[(i + 1) * PlaneBytes(n) - 1] & unused) != std::byte{0}) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ": unused bits of plane ", i + 1, " are not 0"));
    }
  }
  const int half = 1 << (k_ - 1);
  std::array<uint8_t, kChunk> codes;
  for (size_t base = 0; base < n; base += kChunk) {
    const size_t count = std::min(kChunk, n - base);
    UnpackPlanes(planes + base / 8, PlaneBytes(n), count, k_, codes.data());
    for (size_t e = 0; e < count; ++e) {
      out.f32()[base + e] = static_cast<float>(codes[e] - half) * scale;
    }
  }
  return absl::OkStatus();
}

// ---- amsgrad_mbq

constexpr double kAlphaRate = 0.001;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;
constexpr float kMaxAlpha = kMaxFloat / 8;  // the sum of eight is finite

class AmsgradMbqEncoder final : public LearnedEncoder {
 public:
  AmsgradMbqEncoder(int k, const CodecKernels& kernels, const EncoderKey& key)
      : LearnedEncoder('A', k, key), kernels_(kernels) {}

 private:
  size_t HeaderBytes() const { return sizeof(float) * (static_cast<size_t>(k()) + 1); }
  Bytes PayloadBytes(const Shape& shape) const override {
    return Bytes(static_cast<int64_t>(HeaderBytes() + k() * PlaneBytes(shape.elements())));
  }
  // Moments: mean, mean square, its largest value, of each alpha.
  Parameters Initial() const override {
    return {std::vector<float>(k()), std::vector<double>(3 * static_cast<size_t>(k()))};
  }
  void Start(const float* x, size_t n, Parameters& parameters) const override {
    const Alphas alpha = GreedyAlphas(x, n, k());
    for (int i = 0; i < k(); ++i) parameters.values[i] = std::min(alpha[i], kMaxAlpha);
  }
  void Write(const float* x, size_t n, const Parameters& parameters,
             std::byte* payload) const override;
  std::vector<double> Derivatives(const float* gradient, const float* x, size_t n,
                                  const std::byte* payload) const override;
  bool Possible(const Parameters& parameters) const override;
  void Step(const std::vector<double>& derivatives, Parameters& parameters) const override;

  const CodecKernels& kernels_;
};

void AmsgradMbqEncoder::Write(const float* x, size_t n, const Parameters& parameters,
                              std::byte* payload) const {
  Alphas alpha = {};
  std::copy_n(parameters.values.begin(), k(), alpha.begin());
  for (int i = 0; i < k(); ++i) StoreFloat(alpha[i], payload + sizeof(float) * i);
  StoreFloat(0.0f, payload + sizeof(float) * k());
  MbqSums sums;
  kernels_.mbq_encode(x, n, MakeSearch(alpha, k()), payload + HeaderBytes(), &sums);
}

// d(sum of +-alpha_i)/d alpha_i is the sign that was sent.
std::vector<double> AmsgradMbqEncoder::Derivatives(const float* gradient, const float*, size_t n,
                                                   const std::byte* payload) const {
  std::vector<double> sums(k());
  std::array<uint8_t, kChunk> codes;
  for (size_t base = 0; base < n; base += kChunk) {
    const size_t count = std::min(kChunk, n - base);
    UnpackPlanes(payload + HeaderBytes() + base / 8, PlaneBytes(n), count, k(), codes.data());
    for (int i = 0; i < k(); ++i) {
      for (size_t e = 0; e < count; ++e) {
        const double g = gradient[base + e];
        sums[i] += (codes[e] >> (k() - 1 - i)) & 1 ? g : -g;
      }
    }
  }
  return sums;
}

bool AmsgradMbqEncoder::Possible(const Parameters& parameters) const {
  for (int i = 0; i < k(); ++i) {
    const double* moments = parameters.moments.data() + 3 * static_cast<size_t>(i);
    if (!(std::fabs(parameters.values[i]) <= kMaxAlpha)) return false;
    if (moments[1] < 0 || moments[2] < moments[1]) return false;
  }
  return true;
}

void AmsgradMbqEncoder::Step(const std::vector<double>& derivatives, Parameters& parameters) const {
  for (int i = 0; i < k(); ++i) {
    double* moments = parameters.moments.data() + 3 * static_cast<size_t>(i);
    const double g = derivatives[i];
    moments[0] = kBeta1 * moments[0] + (1 - kBeta1) * g;
    moments[1] = kBeta2 * moments[1] + (1 - kBeta2) * g * g;
    moments[2] = std::max(moments[2], moments[1]);
    const double moved =
        parameters.values[i] - kAlphaRate * moments[0] / (std::sqrt(moments[2]) + kEpsilon);
    parameters.values[i] = static_cast<float>(std::clamp<double>(moved, -kMaxAlpha, kMaxAlpha));
  }
}

}  // namespace

std::unique_ptr<const Codec> MakeUniformCodec(int k) { return std::make_unique<UniformCodec>(k); }

std::unique_ptr<const Codec> MakeAmsgradMbqCodec(int k, const CodecKernels& kernels) {
  return std::make_unique<MbqPayloadCodec<AmsgradMbqEncoder>>("amsgrad_mbq", k, kernels);
}

}  // namespace runnel
