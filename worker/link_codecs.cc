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

absl::StatusOr<std::unique_ptr<const Codec>> LinkCodecs::Make(const std::string& name) const {
  if (format_.scaled() && name == "identity") {
    return absl::InvalidArgumentError(absl::StrCat("codec identity: the boundary is ",
                                                   runnel::Name(format_.activation), "; codec ",
                                                   kLossless, " sends it as it is"));
  }
  return MakeCodec(name);
}

absl::StatusOr<std::unique_ptr<LinkCodecs>> LinkCodecs::Create(const Plan& plan, int stage,
                                                               uint64_t run_seed,
                                                               const NumberFormat& format) {
  auto codecs = std::make_unique<LinkCodecs>();
  codecs->format_ = format;
  const StagePlan& here = plan.stages[stage];
  Direction& down = codecs->at(false);
  Direction& up = codecs->at(true);
  down.boundary = here.last_layer;
  up.boundary = here.first_layer - 1;
  if (stage + 1 < static_cast<int>(plan.stages.size())) {
    RUNNEL_ASSIGN_OR_RETURN(down.sends, codecs->Make(plan.links[stage].codec_forward));
    RUNNEL_ASSIGN_OR_RETURN(up.receives, codecs->Make(plan.links[stage].codec_backward));
    down.encoder = down.sends->NewEncoder(
        {run_seed, RandomPurpose::kCodecForward, static_cast<uint64_t>(down.boundary)});
  }
  if (stage > 0) {
    RUNNEL_ASSIGN_OR_RETURN(up.sends, codecs->Make(plan.links[stage - 1].codec_backward));
    RUNNEL_ASSIGN_OR_RETURN(down.receives, codecs->Make(plan.links[stage - 1].codec_forward));
    up.encoder = up.sends->NewEncoder(
        {run_seed, RandomPurpose::kCodecBackward, static_cast<uint64_t>(up.boundary)});
  }
  if (format.scaled()) {
    RUNNEL_ASSIGN_OR_RETURN(codecs->evaluation_, MakeCodec(kLossless));
  }
  return codecs;
}

absl::Status LinkCodecs::CheckTensor(const Shape& shape, size_t bytes) const {
  if (static_cast<int64_t>(bytes) == TensorBytes(shape)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("boundary tensor of shape ", shape.ToString(),
                                                 " has ", bytes, " bytes, needs ",
                                                 TensorBytes(shape)));
}

absl::Status LinkCodecs::Encode(bool up, const Shape& shape, absl::Span<const std::byte> tensor,
                                Sequence sequence, bool restart, absl::Span<std::byte> payload) {
  RUNNEL_RETURN_IF_ERROR(CheckTensor(shape, tensor.size()));
  Direction& direction = at(up);
  if (!format_.scaled()) {
    const TensorView x{DType::kFloat32, shape, Layout::kRowMajor, 0, tensor};
    return direction.encoder->Encode(x, sequence, restart, payload);
  }
  const TensorView x = ScaledView(shape, tensor);
  if (direction.sends->takes_scaled()) {
    return direction.encoder->Encode(x, sequence, restart, payload);
  }
  if (x.exponent > kMaxFloatExponent) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", direction.sends->name(), ": exponent ",
                                                   x.exponent, " is beyond FP32"));
  }
  floats_.resize(x.bytes.size());
  Dequantize({reinterpret_cast<const int8_t*>(x.bytes.data()), x.bytes.size()}, x.exponent,
             absl::MakeSpan(floats_));
  return direction.encoder->Encode(ViewOf(floats_, shape), sequence, restart, payload);
}

absl::Status LinkCodecs::Decode(bool up, absl::Span<const std::byte> payload, const Shape& shape,
                                absl::Span<std::byte> tensor) {
  RUNNEL_RETURN_IF_ERROR(CheckTensor(shape, tensor.size()));
  const Codec& codec = *at(up).receives;
  if (!format_.scaled()) {
    return codec.Decode(payload, {DType::kFloat32, shape, Layout::kRowMajor, 0, tensor});
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

int64_t LinkCodecs::EncodedBytes(bool sends, bool up, const Shape& shape) const {
  const auto& codec = sends ? at(up).sends : at(up).receives;
  return codec == nullptr ? 0 : codec->EncodedBytes(shape).value();
}

uint8_t LinkCodecs::Bits(bool up) const {
  const std::string name = at(up).sends == nullptr ? "" : at(up).sends->name();
  const size_t colon = name.find(':');
  int bits = 0;
  if (at(up).sends != nullptr && at(up).sends->takes_scaled()) return 8;
  if (colon == std::string::npos || !absl::SimpleAtoi(name.substr(colon + 1), &bits)) return 32;
  return static_cast<uint8_t>(bits);
}

int32_t LinkCodecs::Exponent(bool up, absl::Span<const std::byte> payload) const {
  return at(up).sends == nullptr ? 0 : at(up).sends->ExponentOf(payload);
}

int32_t LinkCodecs::EvaluationExponent(absl::Span<const std::byte> payload) const {
  return evaluation_ == nullptr ? 0 : evaluation_->ExponentOf(payload);
}

std::vector<EncoderState> LinkCodecs::SaveStates() const {
  std::vector<EncoderState> states;
  for (bool up : {false, true}) {
    const Direction& direction = at(up);
    if (direction.encoder == nullptr) continue;
    states.push_back(
        {direction.boundary, up, direction.sends->name(), direction.encoder->SaveState()});
  }
  return states;
}

absl::Status LinkCodecs::RestoreStates(const std::vector<EncoderState>& states) {
  for (const EncoderState& state : states) {
    Direction& direction = at(state.up);
    if (direction.encoder == nullptr || direction.boundary != state.boundary ||
        direction.sends->name() != state.codec) {
      continue;
    }
    RUNNEL_RETURN_IF_ERROR(direction.encoder->RestoreState(state.state));
  }
  return absl::OkStatus();
}

}  // namespace runnel
