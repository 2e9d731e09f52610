#include "compress/mbq/mbq.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "compress/codec_checks.h"
#include "compress/mbq/mbq_math.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

size_t HeaderBytes(int k) { return sizeof(float) * (k + 1); }

Bytes MbqBytes(int k, const Shape& shape) {
  return Bytes(static_cast<int64_t>(HeaderBytes(k) + k * PlaneBytes(shape.elements())));
}

// State layout: 'M', version, k, 0, then t as 64 bits, then k alphas; little-endian.
constexpr size_t kStateHeaderBytes = 12;
constexpr char kStateVersion = 1;

class MbqEncoder final : public Encoder {
 public:
  MbqEncoder(int k, const CodecKernels& kernels) : k_(k), kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool restart,
                      absl::Span<std::byte> payload) override;
  std::string SaveState() const override;
  absl::Status RestoreState(absl::string_view state) override;

 private:
  // Greedy alphas of x itself, and x encoded with them.
  Alphas EncodeAnew(const float* x, size_t n, std::byte* planes, MbqSums* sums) const {
    const Alphas alpha = GreedyAlphas(x, n, k_);
    kernels_.mbq_encode(x, n, MakeSearch(alpha, k_), planes, sums);
    return alpha;
  }

  const int k_;
  const CodecKernels& kernels_;
  int64_t steps_ = 0;  // t of the next micro-batch; 0: it starts anew
  Alphas alpha_ = {};  // canonical, of the last micro-batch
};

absl::Status MbqEncoder::Encode(const TensorView& x, Sequence, bool restart,
                                absl::Span<std::byte> payload) {
  RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), MbqBytes(k_, x.shape)));
  const auto n = static_cast<size_t>(x.shape.elements());
  std::byte* planes = payload.data() + HeaderBytes(k_);
  const int64_t t = restart ? 0 : steps_;
  MbqSums sums;
  Alphas alpha = {};
  if (t == 0) {
    if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
    alpha = EncodeAnew(x.f32(), n, planes, &sums);
  } else {
    kernels_.mbq_encode(x.f32(), n, MakeSearch(alpha_, k_), planes, &sums);
    if (!std::isfinite(MergeLanes(sums.x))) return NonFiniteError(x.f32(), n);
    std::array<double, kMaxMbqBits> alpha_star = {};
    if (!SolveAlphas(sums, n, k_, &alpha_star) ||
        !MixAlphas(alpha_, alpha_star, k_, EmaWeight(t), &alpha)) {
      alpha = EncodeAnew(x.f32(), n, planes, &sums);
    }
  }
  for (int i = 0; i < k_; ++i) StoreFloat(alpha[i], payload.data() + sizeof(float) * i);
  StoreFloat(MeanError(alpha, sums, n, k_), payload.data() + sizeof(float) * k_);
  alpha_ = Canonical(alpha, k_);
  steps_ = t + 1;
  return absl::OkStatus();
}

std::string MbqEncoder::SaveState() const {
  if (steps_ == 0) return "";
  std::string state = {'M', kStateVersion, static_cast<char>(k_), 0};
  for (int i = 0; i < 8; ++i) state += static_cast<char>(steps_ >> (8 * i));
  for (int i = 0; i < k_; ++i) {
    std::byte bytes[sizeof(float)];
    StoreFloat(alpha_[i], bytes);
    state.append(reinterpret_cast<const char*>(bytes), sizeof(bytes));
  }
  return state;
}

absl::Status MbqEncoder::RestoreState(absl::string_view state) {
  if (state.empty()) {
    steps_ = 0;
    alpha_ = {};
    return absl::OkStatus();
  }
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat("mbq:", k_, ": not a state of this encoder (", state.size(), " bytes)"));
  const absl::string_view magic = state.substr(0, 4);
  if (state.size() != kStateHeaderBytes + k_ * sizeof(float) || magic[0] != 'M' ||
      magic[1] != kStateVersion || magic[2] != k_ || magic[3] != 0) {
    return refused;
  }
  uint64_t steps = 0;
  for (int i = 0; i < 8; ++i) steps |= uint64_t{static_cast<uint8_t>(state[4 + i])} << (8 * i);
  if (steps == 0 || steps >> 62 != 0) return refused;
  Alphas alpha = {};
  const auto* bytes = reinterpret_cast<const std::byte*>(state.data() + kStateHeaderBytes);
  for (int i = 0; i < k_; ++i) {
    alpha[i] = LoadFloat(bytes + sizeof(float) * i);
    if (!std::isfinite(alpha[i]) || std::signbit(alpha[i])) return refused;
    if (i > 0 && alpha[i] > alpha[i - 1]) return refused;
  }
  steps_ = static_cast<int64_t>(steps);
  alpha_ = alpha;
  return absl::OkStatus();
}

class MbqCodec final : public Codec {
 public:
  MbqCodec(int k, const CodecKernels& kernels) : k_(k), kernels_(kernels) {}

  std::string name() const override { return absl::StrCat("mbq:", k_); }
  Bytes EncodedBytes(const Shape& shape) const override { return MbqBytes(k_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey&) const override {
    return std::make_unique<MbqEncoder>(k_, kernels_);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override;

 private:
  const int k_;
  const CodecKernels& kernels_;
};

absl::Status MbqCodec::Decode(absl::Span<const std::byte> payload,
                              const MutableTensorView& out) const {
  RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), MbqBytes(k_, out.shape), out));
  const auto n = static_cast<size_t>(out.shape.elements());
  Alphas alpha = {};
  for (int i = 0; i < k_; ++i) {
    alpha[i] = LoadFloat(payload.data() + sizeof(float) * i);
    if (!std::isfinite(alpha[i])) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ": alpha ", i + 1, " is not finite"));
    }
  }
  const float mean_error = LoadFloat(payload.data() + sizeof(float) * k_);
  if (!std::isfinite(mean_error)) {
    return absl::InvalidArgumentError(absl::StrCat(name(), ": mean error is not finite"));
  }
  const std::byte* planes = payload.data() + HeaderBytes(k_);
  const size_t plane_bytes = PlaneBytes(n);
  const auto unused = static_cast<std::byte>(0xFFu >> (n % 8 == 0 ? 8 : n % 8));
  for (int i = 0; i < k_; ++i) {
    if ((planes[(i + 1) * plane_bytes - 1] & unused) != std::byte{0}) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ": unused bits of plane ", i + 1, " are not 0"));
    }
  }
  kernels_.mbq_decode(planes, n, MakeLevels(alpha, k_, mean_error), out.f32());
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<const Codec> MakeMbqCodec(int k, const CodecKernels& kernels) {
  return std::make_unique<MbqCodec>(k, kernels);
}

}  // namespace runnel
