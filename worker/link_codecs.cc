#include "worker/link_codecs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/quantize.h"
#include "proto/base/status_macros.h"

namespace runnel {

namespace {

constexpr absl::string_view kLossless = "int8";  // of scaled tensors

// A scaled tensor's elements with their exponent.
TensorView ScaledView(const Shape& shape, absl::Span<const std::byte> tensor) {
  const int32_t exponent = TailOf(tensor.data(), DType::kInt8, shape).exponent;
  return {DType::kInt8, shape, Layout::kRowMajor, exponent,
          tensor.first(static_cast<size_t>(shape.elements()))};
}

// What stands behind the elements of a scaled tensor.
void FinishScaled(const Shape& shape, int32_t exponent, absl::Span<std::byte> tensor) {
  const auto elements = static_cast<size_t>(shape.elements());
  std::fill(tensor.begin() + elements, tensor.end(), std::byte{0});
  TailOf(tensor.data(), DType::kInt8, shape).exponent = exponent;
}

absl::Span<int8_t> MantissasOf(absl::Span<std::byte> tensor, size_t elements) {
  return absl::MakeSpan(reinterpret_cast<int8_t*>(tensor.data()), elements);
}

}  // namespace

absl::StatusOr<LinkCodecs::Codecs> LinkCodecs::Make(const std::string& schedule, bool down) const {
  Codecs codecs;
  RUNNEL_ASSIGN_OR_RETURN(codecs.steps, ParseCodecSchedule(schedule));
  for (const CodecStep& step : codecs.steps) {
    if (format_.scaled() && step.codec == "identity") {
      return absl::InvalidArgumentError(absl::StrCat("codec identity: the boundary is ",
                                                     runnel::Name(format_.activation), "; codec ",
                                                     kLossless, " sends it as it is"));
    }
    RUNNEL_ASSIGN_OR_RETURN(codecs.made.emplace_back(), MakeCodec(step.codec));
    if (!LearnsFromLoss(step.codec)) continue;
    if (format_.scaled() || !down) {
      return absl::InvalidArgumentError(absl::StrCat(
          "codec ", step.codec, ": learns from the gradients of FP32 activations; ",
          format_.scaled() ? "the boundary is in integers" : "it is no codec of them"));
    }
  }
  return codecs;
}

absl::StatusOr<std::unique_ptr<LinkCodecs>> LinkCodecs::Create(const Plan& plan, int stage,
                                                               uint64_t run_seed,
                                                               const NumberFormat& format) {
  auto codecs = std::make_unique<LinkCodecs>();
  codecs->format_ = format;
  const StagePlan& here = plan.stages[stage];
  Direction& down = codecs->at(false);
  Direction& up = codecs->at(true);
  down.key = {run_seed, RandomPurpose::kCodecForward, static_cast<uint64_t>(here.last_layer),
              here.cap};
  up.key = {run_seed, RandomPurpose::kCodecBackward, static_cast<uint64_t>(here.first_layer - 1),
            here.cap};
  if (stage + 1 < static_cast<int>(plan.stages.size())) {
    RUNNEL_ASSIGN_OR_RETURN(down.sends, codecs->Make(plan.links[stage].codec_forward, true));
    RUNNEL_ASSIGN_OR_RETURN(up.receives, codecs->Make(plan.links[stage].codec_backward, false));
  }
  if (stage > 0) {
    RUNNEL_ASSIGN_OR_RETURN(up.sends, codecs->Make(plan.links[stage - 1].codec_backward, false));
    RUNNEL_ASSIGN_OR_RETURN(down.receives, codecs->Make(plan.links[stage - 1].codec_forward, true));
  }
  if (format.scaled()) {
    RUNNEL_ASSIGN_OR_RETURN(codecs->evaluation_, MakeCodec(kLossless));
  }
  return codecs;
}

Encoder& LinkCodecs::EncoderFor(const Codec& codec, Direction& direction) {
  if (direction.encoder == nullptr || direction.encoder_of->name() != codec.name()) {
    direction.encoder = codec.NewEncoder(direction.key);
    direction.encoder_of = &codec;
  }
  return *direction.encoder;
}

absl::Status LinkCodecs::CheckTensor(const Shape& shape, size_t bytes) const {
  if (static_cast<int64_t>(bytes) == TensorBytes(shape)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("boundary tensor of shape ", shape.ToString(),
                                                 " has ", bytes, " bytes, needs ",
                                                 TensorBytes(shape)));
}

absl::Status LinkCodecs::Encode(bool up, const MicroBatch& place, const Shape& shape,
                                absl::Span<const std::byte> tensor, absl::Span<std::byte> payload) {
  RUNNEL_RETURN_IF_ERROR(CheckTensor(shape, tensor.size()));
  const Codec& codec = *at(up).sends.InEpoch(place.epoch);
  Encoder& encoder = EncoderFor(codec, at(up));
  if (!format_.scaled()) {
    const TensorView x{DType::kFloat32, shape, Layout::kRowMajor, 0, tensor};
    return encoder.Encode(x, place.sequence, place.first_in_epoch, payload);
  }
  const TensorView x = ScaledView(shape, tensor);
  if (codec.takes_scaled()) {
    return encoder.Encode(x, place.sequence, place.first_in_epoch, payload);
  }
  if (x.exponent > kMaxFloatExponent) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", codec.name(), ": exponent ", x.exponent, " is beyond FP32"));
  }
  floats_.resize(x.bytes.size());
  Dequantize({reinterpret_cast<const int8_t*>(x.bytes.data()), x.bytes.size()}, x.exponent,
             absl::MakeSpan(floats_));
  return encoder.Encode(ViewOf(floats_, shape), place.sequence, place.first_in_epoch, payload);
}

absl::Status LinkCodecs::Decode(bool up, const MicroBatch& place,
                                absl::Span<const std::byte> payload, const Shape& shape,
                                absl::Span<std::byte> tensor) {
  RUNNEL_RETURN_IF_ERROR(CheckTensor(shape, tensor.size()));
  const Codec& codec = *at(up).receives.InEpoch(place.epoch);
  if (!format_.scaled()) {
    RUNNEL_RETURN_IF_ERROR(
        codec.Decode(payload, {DType::kFloat32, shape, Layout::kRowMajor, 0, tensor}));
    // What comes up is the loss's gradient with respect to what went down.
    Direction& down = at(false);
    if (!up || down.encoder == nullptr || !down.encoder->learns()) return absl::OkStatus();
    return down.encoder->Learn({DType::kFloat32, shape, Layout::kRowMajor, 0, tensor},
                               place.sequence);
  }
  const auto elements = static_cast<size_t>(shape.elements());
  int32_t exponent = 0;
  if (codec.takes_scaled()) {
    RUNNEL_ASSIGN_OR_RETURN(exponent, codec.DecodeScaled(payload, shape, tensor.first(elements)));
  } else {
    floats_.resize(elements);
    RUNNEL_RETURN_IF_ERROR(codec.Decode(payload, MutableViewOf(absl::MakeSpan(floats_), shape)));
    exponent = Quantize(floats_, QuantizeRule::kPowerOfTwo, MantissasOf(tensor, elements));
  }
  FinishScaled(shape, exponent, tensor);
  return absl::OkStatus();
}

absl::StatusOr<Payload> LinkCodecs::PackEvaluation(const Shape& shape, Payload from,
                                                   BufferPool& pool) const {
  if (evaluation_ == nullptr) return from;
  RUNNEL_RETURN_IF_ERROR(CheckTensor(shape, from.size()));
  Payload packed = pool.Allocate(static_cast<size_t>(EvaluationBytes(shape)));
  RUNNEL_RETURN_IF_ERROR(evaluation_->NewEncoder({})->Encode(
      ScaledView(shape, from.bytes()), Sequence(0), true, packed.mutable_bytes()));
  return packed;
}

absl::StatusOr<Payload> LinkCodecs::UnpackEvaluation(const Shape& shape, Payload from,
                                                     BufferPool& pool) const {
  if (evaluation_ == nullptr) return from;
  Payload tensor = pool.Allocate(static_cast<size_t>(TensorBytes(shape)));
  const absl::Span<std::byte> bytes = tensor.mutable_bytes();
  const auto elements = static_cast<size_t>(shape.elements());
  RUNNEL_ASSIGN_OR_RETURN(const int32_t exponent,
                          evaluation_->DecodeScaled(from.bytes(), shape, bytes.first(elements)));
  FinishScaled(shape, exponent, bytes);
  return tensor;
}

int64_t LinkCodecs::EvaluationBytes(const Shape& shape) const {
  return evaluation_ == nullptr ? TensorBytes(shape) : evaluation_->EncodedBytes(shape).value();
}

int64_t LinkCodecs::EncodedBytes(bool up, int64_t epoch, const Shape& shape) const {
  const Codec* codec = at(up).sends.InEpoch(epoch);
  return codec == nullptr ? 0 : codec->EncodedBytes(shape).value();
}

int64_t LinkCodecs::MaxReceivedBytes(bool up, const Shape& shape) const {
  int64_t most = 0;
  for (const auto& codec : at(up).receives.made) {
    most = std::max(most, codec->EncodedBytes(shape).value());
  }
  return most;
}

uint8_t LinkCodecs::Bits(bool up, int64_t epoch) const {
  const Codec* codec = at(up).sends.InEpoch(epoch);
  if (codec == nullptr) return 32;
  if (codec->takes_scaled()) return 8;
  const std::string name = codec->name();
  const size_t colon = name.find(':');
  int bits = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(name.substr(colon + 1), &bits)) return 32;
  return static_cast<uint8_t>(bits);
}

int32_t LinkCodecs::Exponent(bool up, int64_t epoch, absl::Span<const std::byte> payload) const {
  const Codec* codec = at(up).sends.InEpoch(epoch);
  return codec == nullptr ? 0 : codec->ExponentOf(payload);
}

int32_t LinkCodecs::EvaluationExponent(absl::Span<const std::byte> payload) const {
  return evaluation_ == nullptr ? 0 : evaluation_->ExponentOf(payload);
}

std::vector<EncoderState> LinkCodecs::SaveStates() const {
  std::vector<EncoderState> states;
  for (bool up : {false, true}) {
    const Direction& direction = at(up);
    if (direction.sends.steps.empty()) continue;
    const bool fresh = direction.encoder == nullptr;
    const Codec& codec = fresh ? *direction.sends.made.front() : *direction.encoder_of;
    states.push_back({static_cast<int>(direction.key.boundary), up, codec.name(),
                      fresh ? "" : direction.encoder->SaveState()});
  }
  return states;
}

absl::Status LinkCodecs::RestoreStates(const std::vector<EncoderState>& states) {
  for (const EncoderState& state : states) {
    Direction& direction = at(state.up);
    if (static_cast<int>(direction.key.boundary) != state.boundary) continue;
    for (const auto& codec : direction.sends.made) {
      if (codec->name() != state.codec) continue;
      RUNNEL_RETURN_IF_ERROR(EncoderFor(*codec, direction).RestoreState(state.state));
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel
