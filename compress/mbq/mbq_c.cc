#include "compress/mbq/mbq_c.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "compress/codec_checks.h"
#include "compress/mbq/mbq.h"
#include "compress/mbq/mbq_math.h"
#include "compress/mbq/mbq_payload_codec.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// State layout: 'C', version, k, 1 if from 0, then t as 64 bits, then k alphas; little-endian.
constexpr size_t kStateHeaderBytes = 12;
constexpr char kStateVersion = 1;
constexpr int kStartRounds = 4;
constexpr double kMaxFloat = std::numeric_limits<float>::max();

// +-alpha_1 .. +-alpha_k, or that from 0 on.
struct Levels {
  Alphas alpha = {};
  bool from_zero = false;

  double centre(int k) const {
    double sum = 0;
    for (int i = 0; i < k && from_zero; ++i) sum += alpha[i];
    return sum;
  }
};

// The clipped elements of a micro-batch: bit e % 8 of byte e / 8.
struct Clipped {
  int64_t sequence = -1;  // none
  size_t elements = 0;
  std::vector<std::byte> below, above;
};

// Sets gradient[e] to 0 where bit e is set and `outward` says that the gradient pushes x out.
template <typename Outward>
void ZeroMarked(const std::vector<std::byte>& marks, Outward outward, float* gradient) {
  constexpr size_t kWord = sizeof(uint64_t);
  for (size_t at = 0; at < marks.size(); at += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, marks.data() + at, std::min(kWord, marks.size() - at));
    for (; word != 0; word &= word - 1) {
      float& value = gradient[8 * at + static_cast<size_t>(std::countr_zero(word))];
      if (outward(value)) value = 0;
    }
  }
}

class MaskedMbqEncoder final : public Encoder {
 public:
  MaskedMbqEncoder(int k, const CodecKernels& kernels, const EncoderKey& key)
      : k_(k), kernels_(kernels), in_flight_(static_cast<size_t>(key.in_flight)) {}

  absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload) override;
  bool masks() const override { return true; }
  absl::Status MaskGradient(absl::Span<float> gradient, Sequence sequence) override;
  std::string SaveState() const override;
  absl::Status RestoreState(absl::string_view state) override;

 private:
  size_t HeaderBytes() const { return sizeof(float) * (static_cast<size_t>(k_) + 1); }
  size_t StateBytes() const { return kStateHeaderBytes + sizeof(float) * static_cast<size_t>(k_); }
  // Encodes with alphas that x itself gives.
  Levels EncodeAnew(const float* x, size_t n, std::byte* planes, MbqSums* sums) const;
  Levels SpanFromZero(const float* x, size_t n, std::byte* planes, MbqSums* sums) const;
  // Encodes with the levels of the micro-batch before. False: they cannot be mixed with those that
  // x asks for.
  bool EncodeOn(const float* x, size_t n, std::byte* planes, MbqSums* sums, Levels* levels) const;
  void Search(const float* x, size_t n, const Levels& levels, std::byte* planes,
              MbqSums* sums) const {
    kernels_.mbq_encode(x, n, MakeSearch(levels.alpha, k_, levels.centre(k_)), planes, sums);
  }
  Clipped& ClippedOf(Sequence sequence) {
    return in_flight_[static_cast<uint64_t>(sequence.value()) % in_flight_.size()];
  }
  void MarkClipped(const float* x, size_t n, const Levels& levels, Clipped* clipped) const;

  const int k_;
  const CodecKernels& kernels_;
  int64_t steps_ = 0;  // t of the next micro-batch; 0: it starts anew
  Levels levels_;      // levels of the last micro-batch; alphas are canonical
  // Micro-batch b is in place b % in_flight: the one that was there has come back.
  std::vector<Clipped> in_flight_;
};

Levels MaskedMbqEncoder::EncodeAnew(const float* x, size_t n, std::byte* planes,
                                    MbqSums* sums) const {
  if (std::all_of(x, x + n, [](float value) { return value >= 0; })) {
    return SpanFromZero(x, n, planes, sums);
  }
  const Levels levels = {GreedyAlphas(x, n, k_), false};
  Search(x, n, levels, planes, sums);
  return levels;
}

Levels MaskedMbqEncoder::SpanFromZero(const float* x, size_t n, std::byte* planes,
                                      MbqSums* sums) const {
  const double step = static_cast<double>(*std::max_element(x, x + n)) / ((1 << k_) - 1);
  Levels levels = {{}, true};
  for (int i = 0; i < k_; ++i) {
    levels.alpha[i] = static_cast<float>(step * (1 << (k_ - 1 - i)) / 2);
  }
  for (int round = 0; round < kStartRounds; ++round) {
    Search(x, n, levels, planes, sums);
    Alphas alpha = {};
    if (!MixAlphas(levels.alpha, RidgeAlphasFromZero(*sums, n, k_), k_, 0, &alpha)) break;
    levels.alpha = Canonical(alpha, k_);
  }
  Search(x, n, levels, planes, sums);
  return levels;
}

bool MaskedMbqEncoder::EncodeOn(const float* x, size_t n, std::byte* planes, MbqSums* sums,
                                Levels* levels) const {
  Search(x, n, levels_, planes, sums);
  levels->from_zero = levels_.from_zero;
  const auto solve = levels_.from_zero ? RidgeAlphasFromZero : RidgeAlphas;
  if (!MixAlphas(levels_.alpha, solve(*sums, n, k_), k_, EmaWeight(steps_), &levels->alpha)) {
    return false;
  }
  // Below 0 nothing is to be had from 0 on.
  return !levels_.from_zero || std::all_of(levels->alpha.begin(), levels->alpha.begin() + k_,
                                           [](float alpha) { return alpha >= 0; });
}

void MaskedMbqEncoder::MarkClipped(const float* x, size_t n, const Levels& levels,
                                   Clipped* clipped) const {
  const Alphas sorted = Canonical(levels.alpha, k_);
  double reach = sorted[k_ - 1];  // half of the gap between the outermost levels
  for (int i = 0; i < k_; ++i) reach += sorted[i];
  const double centre = levels.centre(k_);
  const auto within = [](double value) {
    return static_cast<float>(std::clamp<double>(value, -kMaxFloat, kMaxFloat));
  };
  clipped->elements = n;
  clipped->below.resize(PlaneBytes(n));
  clipped->above.resize(PlaneBytes(n));
  kernels_.mark_outside(x, n, within(centre - reach), within(centre + reach), clipped->below.data(),
                        clipped->above.data());
}

absl::Status MaskedMbqEncoder::Encode(const TensorView& x, Sequence sequence, bool restart,
                                      absl::Span<std::byte> payload) {
  const auto n = static_cast<size_t>(x.shape.elements());
  const size_t bytes = HeaderBytes() + static_cast<size_t>(k_) * PlaneBytes(n);
  RUNNEL_RETURN_IF_ERROR(
      CheckEncodeArguments(x, payload.size(), Bytes(static_cast<int64_t>(bytes))));
  if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
  std::byte* planes = payload.data() + HeaderBytes();
  MbqSums sums;
  Levels levels;
  if (restart || levels_.alpha[0] == 0) steps_ = 0;  // t = 0, or nothing is left of the alphas
  if (steps_ == 0 || !EncodeOn(x.f32(), n, planes, &sums, &levels)) {
    levels = EncodeAnew(x.f32(), n, planes, &sums);
  }
  for (int i = 0; i < k_; ++i) {
    StoreFloat(levels.alpha[i], payload.data() + sizeof(float) * i);
  }
  const float mean_error = levels.from_zero ? static_cast<float>(-levels.centre(k_))
                                            : MeanError(levels.alpha, sums, n, k_);
  StoreFloat(mean_error, payload.data() + sizeof(float) * k_);
  Clipped& clipped = ClippedOf(sequence);
  clipped.sequence = sequence.value();
  MarkClipped(x.f32(), n, levels, &clipped);
  levels_ = {Canonical(levels.alpha, k_), levels.from_zero};
  ++steps_;
  return absl::OkStatus();
}

absl::Status MaskedMbqEncoder::MaskGradient(absl::Span<float> gradient, Sequence sequence) {
  Clipped& clipped = ClippedOf(sequence);
  if (clipped.sequence != sequence.value()) return absl::OkStatus();
  if (gradient.size() != clipped.elements) {
    return absl::InvalidArgumentError(absl::StrCat("mbq_c:", k_, ": a gradient of ",
                                                   gradient.size(), " elements for a tensor of ",
                                                   clipped.elements));
  }
  // A step goes against the gradient.
  ZeroMarked(
      clipped.below, [](float value) { return value > 0; }, gradient.data());
  ZeroMarked(
      clipped.above, [](float value) { return value < 0; }, gradient.data());
  clipped.sequence = -1;
  return absl::OkStatus();
}

std::string MaskedMbqEncoder::SaveState() const {
  if (steps_ == 0) return "";
  std::string state = {'C', kStateVersion, static_cast<char>(k_),
                       static_cast<char>(levels_.from_zero)};
  for (int i = 0; i < 8; ++i) state += static_cast<char>(steps_ >> (8 * i));
  state.resize(StateBytes());
  auto* fields = reinterpret_cast<std::byte*>(state.data()) + kStateHeaderBytes;
  for (int i = 0; i < k_; ++i) StoreFloat(levels_.alpha[i], fields + sizeof(float) * i);
  return state;
}

absl::Status MaskedMbqEncoder::RestoreState(absl::string_view state) {
  Levels levels;
  uint64_t steps = 0;
  if (!state.empty()) {
    const absl::Status refused = absl::InvalidArgumentError(
        absl::StrCat("mbq_c:", k_, ": not a state of this encoder (", state.size(), " bytes)"));
    if (state.size() != StateBytes() || state[0] != 'C' || state[1] != kStateVersion ||
        state[2] != k_ || (state[3] != 0 && state[3] != 1)) {
      return refused;
    }
    for (int i = 0; i < 8; ++i) steps |= uint64_t{static_cast<uint8_t>(state[4 + i])} << (8 * i);
    if (steps == 0 || steps >> 62 != 0) return refused;
    const auto* fields = reinterpret_cast<const std::byte*>(state.data()) + kStateHeaderBytes;
    levels.from_zero = state[3] == 1;
    for (int i = 0; i < k_; ++i) {
      const float alpha = LoadFloat(fields + sizeof(float) * i);
      if (!std::isfinite(alpha) || std::signbit(alpha)) return refused;
      if (i > 0 && alpha > levels.alpha[i - 1]) return refused;
      levels.alpha[i] = alpha;
    }
  }
  steps_ = static_cast<int64_t>(steps);
  levels_ = levels;
  for (Clipped& clipped : in_flight_) clipped.sequence = -1;
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<const Codec> MakeMaskedMbqCodec(int k, const CodecKernels& kernels) {
  return std::make_unique<MbqPayloadCodec<MaskedMbqEncoder>>("mbq_c", k, kernels);
}

}  // namespace runnel
