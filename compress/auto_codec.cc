#include "compress/auto_codec.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/mbq/mbq_c.h"
#include "compress/tile/tile.h"
#include "compress/typical_errors.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kStateVersion = 1;
// Tag, tensors since the choice (64 bits), bytes of the chosen encoder's state (32 bits).
constexpr size_t kStateHeaderBytes = 16;
constexpr size_t kChoiceBytes = 1;
constexpr uint32_t kMeasureEvery = 100;

struct Candidate {
  absl::string_view family;
  bool for_gradients;
  double (*error)(Direction direction, double bits);
  std::unique_ptr<const Codec> (*make)(int bits, const CodecKernels& kernels);
};

// Ties go to the first. The order is that of the payload's byte.
constexpr Candidate kCandidates[] = {
    {"tile", true, TileError,
     [](int bits, const CodecKernels& kernels) { return MakeTileCodec({.bits = bits}, kernels); }},
    {"hadamard", true, HadamardError,
     [](int bits, const CodecKernels& kernels) {
       return MakeTileCodec({.bits = bits, .rotate = true}, kernels);
     }},
    {"eden", true, EdenError,
     [](int bits, const CodecKernels& kernels) {
       return MakeTileCodec({.bits = bits, .rotate = true, .unbiased = true}, kernels);
     }},
    {"mbq_c", false, MaskedMbqError, MakeMaskedMbqCodec},
};

bool IsFor(const Candidate& candidate, Direction direction) {
  return candidate.for_gradients || direction == Direction::kForward;
}

// In eight lanes that all machines have.
double SquaredError(const float* a, const float* b, size_t n) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  for (size_t e = 0; e < n; ++e) {
    const double error = static_cast<double>(a[e]) - static_cast<double>(b[e]);
    lanes[e % kLanes] += error * error;
  }
  for (size_t lane = 1; lane < kLanes; ++lane) lanes[0] += lanes[lane];
  return lanes[0];
}

using Codecs = std::vector<std::shared_ptr<const Codec>>;

Bytes AutoBytes(const Codecs& codecs, const Shape& shape) {
  int64_t most = 0;
  for (const auto& codec : codecs) most = std::max(most, codec->EncodedBytes(shape).value());
  return Bytes(static_cast<int64_t>(kChoiceBytes) + most);
}

class AutoEncoder final : public Encoder {
 public:
  AutoEncoder(int bits, const Codecs& codecs, const EncoderKey& key)
      : bits_(bits), codecs_(codecs), key_(key) {
    for (const auto& codec : codecs) {
      encoders_.push_back(codec->NewEncoder(key));
      probes_.push_back(codec->NewEncoder(key));
    }
  }

  absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload) override;
  bool masks() const override { return direction() == Direction::kForward; }
  absl::Status MaskGradient(absl::Span<float> gradient, Sequence sequence) override;
  std::string SaveState() const override;
  absl::Status RestoreState(absl::string_view state) override;

 private:
  Direction direction() const {
    return key_.purpose == RandomPurpose::kCodecBackward ? Direction::kBackward
                                                         : Direction::kForward;
  }
  // Codes x with every candidate and chooses. The payload is the chosen one's.
  absl::Status Measure(const TensorView& x, Sequence sequence, bool restart,
                       absl::Span<std::byte> payload);
  absl::StatusOr<double> ErrorOf(size_t candidate, const TensorView& x,
                                 absl::Span<const std::byte> coded);
  absl::Span<std::byte> PartOf(size_t candidate, const Shape& shape,
                               absl::Span<std::byte> payload) const {
    return payload.first(static_cast<size_t>(codecs_[candidate]->EncodedBytes(shape).value()));
  }

  const int bits_;
  const Codecs codecs_;
  const EncoderKey key_;
  size_t choice_ = 0;
  uint32_t since_ = 0;  // tensors since it was made; 0: none was
  // By candidate. Those that code; the one that clips knows what of it is in flight, whoever codes now.
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<std::unique_ptr<Encoder>> probes_;  // code as new ones do, to measure
  std::vector<std::byte> probed_;
  std::vector<float> decoded_;
};

absl::StatusOr<double> AutoEncoder::ErrorOf(size_t candidate, const TensorView& x,
                                            absl::Span<const std::byte> coded) {
  const auto n = static_cast<size_t>(x.shape.elements());
  decoded_.resize(n);
  RUNNEL_RETURN_IF_ERROR(
      codecs_[candidate]->Decode(coded, MutableViewOf(absl::MakeSpan(decoded_), x.shape)));
  return SquaredError(x.f32(), decoded_.data(), n);
}

absl::Status AutoEncoder::Measure(const TensorView& x, Sequence sequence, bool restart,
                                  absl::Span<std::byte> payload) {
  const bool goes_on = since_ > 0 && !restart;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  size_t best = choice_;
  probed_.resize(payload.size());
  for (size_t i = 0; i < codecs_.size(); ++i) {
    if (!IsFor(kCandidates[i], direction())) continue;
    const bool is_current = goes_on && i == choice_;
    // In its stead, since an encoder that clips masks the gradient of what it has encoded.
    if (is_current) RUNNEL_RETURN_IF_ERROR(probes_[i]->RestoreState(encoders_[i]->SaveState()));
    const absl::Span<std::byte> coded = PartOf(i, x.shape, absl::MakeSpan(probed_));
    RUNNEL_RETURN_IF_ERROR(probes_[i]->Encode(x, sequence, !is_current, coded));
    RUNNEL_ASSIGN_OR_RETURN(const double error, ErrorOf(i, x, coded));
    most = std::max(most, error);
    if (error >= least) continue;
    least = error;
    best = i;
  }
  // A tensor that all send exactly, of zeros, says nothing of the next one.
  since_ = most > 0 ? 0 : kMeasureEvery - 1;
  const bool stays = goes_on && best == choice_;
  choice_ = best;
  return encoders_[best]->Encode(x, sequence, !stays, PartOf(best, x.shape, payload));
}

absl::Status AutoEncoder::Encode(const TensorView& x, Sequence sequence, bool restart,
                                 absl::Span<std::byte> payload) {
  RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), AutoBytes(codecs_, x.shape)));
  const auto n = static_cast<size_t>(x.shape.elements());
  if (BestCodecKernels().max_abs_bits(x.f32(), n) >= kInfinityBits)
    return NonFiniteError(x.f32(), n);
  const absl::Span<std::byte> coded = payload.subspan(kChoiceBytes);
  if (restart || since_ == 0 || since_ == kMeasureEvery) {
    RUNNEL_RETURN_IF_ERROR(Measure(x, sequence, restart, coded));
  } else {
    RUNNEL_RETURN_IF_ERROR(
        encoders_[choice_]->Encode(x, sequence, false, PartOf(choice_, x.shape, coded)));
  }
  payload[0] = static_cast<std::byte>(choice_);
  const size_t used = PartOf(choice_, x.shape, coded).size();
  std::fill(coded.begin() + static_cast<std::ptrdiff_t>(used), coded.end(), std::byte{0});
  ++since_;
  return absl::OkStatus();
}

// Each leaves the gradients of what it did not encode as they are.
absl::Status AutoEncoder::MaskGradient(absl::Span<float> gradient, Sequence sequence) {
  for (const auto& encoder : encoders_) {
    if (encoder->masks()) RUNNEL_RETURN_IF_ERROR(encoder->MaskGradient(gradient, sequence));
  }
  return absl::OkStatus();
}

std::string AutoEncoder::SaveState() const {
  if (since_ == 0) return "";
  std::string state = {'U', kStateVersion, static_cast<char>(bits_), static_cast<char>(choice_)};
  const std::string chosen = encoders_[choice_]->SaveState();
  for (int shift = 0; shift < 64; shift += 8)
    state.push_back(static_cast<char>(uint64_t{since_} >> shift));
  for (int shift = 0; shift < 32; shift += 8)
    state.push_back(static_cast<char>(chosen.size() >> shift));
  return state + chosen;
}

absl::Status AutoEncoder::RestoreState(absl::string_view state) {
  size_t choice = 0;
  uint32_t since = 0;
  if (!state.empty()) {
    const absl::Status refused = absl::InvalidArgumentError(
        absl::StrCat("auto:", bits_, ": not a state of this encoder (", state.size(), " bytes)"));
    if (state.size() < kStateHeaderBytes || state[0] != 'U' || state[1] != kStateVersion ||
        state[2] != bits_) {
      return refused;
    }
    choice = static_cast<unsigned char>(state[3]);
    const auto* fields = reinterpret_cast<const std::byte*>(state.data()) + 4;
    since = static_cast<uint32_t>(LoadInt32(fields));
    const auto chosen_bytes = static_cast<uint32_t>(LoadInt32(fields + 8));
    if (LoadInt32(fields + 4) != 0 || chosen_bytes != state.size() - kStateHeaderBytes)
      return refused;
    if (choice >= codecs_.size() || !IsFor(kCandidates[choice], direction()) || since == 0 ||
        since > kMeasureEvery) {
      return refused;
    }
    const std::unique_ptr<Encoder> heir = codecs_[choice]->NewEncoder(key_);
    RUNNEL_RETURN_IF_ERROR(heir->RestoreState(state.substr(kStateHeaderBytes)));
  }
  // Nothing is in flight.
  for (const auto& encoder : encoders_) RUNNEL_RETURN_IF_ERROR(encoder->RestoreState(""));
  choice_ = choice;
  since_ = since;
  return since == 0 ? absl::OkStatus()
                    : encoders_[choice]->RestoreState(state.substr(kStateHeaderBytes));
}

class AutoCodec final : public Codec {
 public:
  AutoCodec(int bits, const CodecKernels& kernels) : bits_(bits) {
    for (const Candidate& candidate : kCandidates) codecs_.push_back(candidate.make(bits, kernels));
  }

  std::string name() const override { return absl::StrCat("auto:", bits_); }
  Bytes EncodedBytes(const Shape& shape) const override { return AutoBytes(codecs_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<AutoEncoder>(bits_, codecs_, key);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override;

 private:
  const int bits_;
  Codecs codecs_;
};

absl::Status AutoCodec::Decode(absl::Span<const std::byte> payload,
                               const MutableTensorView& out) const {
  RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), EncodedBytes(out.shape), out));
  const auto choice = std::to_integer<size_t>(payload[0]);
  if (choice >= codecs_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(name(), ": there is no candidate ", choice));
  }
  const Codec& codec = *codecs_[choice];
  const auto bytes = static_cast<size_t>(codec.EncodedBytes(out.shape).value());
  const absl::Span<const std::byte> rest = payload.subspan(kChoiceBytes + bytes);
  if (std::any_of(rest.begin(), rest.end(), [](std::byte byte) { return byte != std::byte{0}; }))
    return absl::InvalidArgumentError(absl::StrCat(name(), ": bytes behind the codes are not 0"));
  return codec.Decode(payload.subspan(kChoiceBytes, bytes), out);
}

}  // namespace

std::unique_ptr<const Codec> MakeAutoCodec(int bits, const CodecKernels& kernels) {
  return std::make_unique<AutoCodec>(bits, kernels);
}

absl::string_view ChosenFamily(absl::Span<const std::byte> payload) {
  const size_t choice =
      payload.empty() ? std::size(kCandidates) : std::to_integer<size_t>(payload[0]);
  return choice < std::size(kCandidates) ? kCandidates[choice].family : absl::string_view();
}

double AutoError(Direction direction, double bits) {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : kCandidates) {
    // mbq_c errs less only when its levels have settled, which a first tensor does not show.
    if (candidate.for_gradients) least = std::min(least, candidate.error(direction, bits));
  }
  return least;
}

}  // namespace runnel
