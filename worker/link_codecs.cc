#include "worker/link_codecs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/grid.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/quantize.h"
#include "proto/base/training/epoch_order.h"

namespace runnel {

namespace {

// A scaled tensor's elements with their exponent.
TensorView ScaledView(const Shape& shape, absl::Span<const std::byte> tensor) {
  const int32_t exponent = TailOf(tensor.data(), DType::kInt8, shape).exponent;
  return {DType::kInt8, shape, Layout::kRowMajor, exponent,
          tensor.first(static_cast<size_t>(shape.elements()))};
}

// Writes the tail behind the elements of a scaled tensor.
void FinishScaled(const Shape& shape, int32_t exponent, absl::Span<std::byte> tensor) {
  const auto elements = static_cast<size_t>(shape.elements());
  std::fill(tensor.begin() + elements, tensor.end(), std::byte{0});
  TailOf(tensor.data(), DType::kInt8, shape).exponent = exponent;
}

// Checks the values that stand behind a tensor and copies them, from memory to a payload or back.
absl::Status CopyBeside(const std::vector<SidePlace>& places, absl::Span<const std::byte> from,
                        size_t SidePlace::*from_offset, absl::Span<std::byte> to,
                        size_t SidePlace::*to_offset) {
  for (const SidePlace& place : places) {
    const absl::Span<const std::byte> values = from.subspan(place.*from_offset, place.bytes);
    RUNNEL_RETURN_IF_ERROR(place.value->Check(values));
    std::copy(values.begin(), values.end(), to.begin() + place.*to_offset);
  }
  return absl::OkStatus();
}

// Whether what a codec of this name kept is of use to `codec`: its own, and of each sample also what
// another number of bits has made.
bool GoesOnFrom(const Codec& codec, absl::string_view name) {
  if (codec.name() == name) return true;
  const auto family = [](absl::string_view text) { return text.substr(0, text.rfind(':')); };
  return codec.keeps_samples() && family(codec.name()) == family(name);
}

}  // namespace

absl::Span<const int64_t> SampleNames::Of(const MicroBatch& place) {
  if (samples_ == 0) return {};
  if (place.epoch != epoch_) {
    order_ = EpochPermutation(samples_, run_seed_, place.epoch);
    epoch_ = place.epoch;
  }
  return absl::MakeConstSpan(order_).subspan(static_cast<size_t>(place.first_sample),
                                             static_cast<size_t>(place.samples));
}

const Codec* LinkCodecs::HeirOf(const EncoderState& state, const Codecs& codecs) {
  for (const auto& codec : codecs.made) {
    if (GoesOnFrom(*codec, state.codec)) return codec.get();
  }
  return nullptr;
}

absl::StatusOr<LinkCodecs::Codecs> LinkCodecs::Make(const CodecSchedule& schedule,
                                                    Direction direction) const {
  Codecs codecs;
  codecs.schedule = schedule;
  for (const auto& [epoch, codec] : schedule.steps()) {
    if (format_.integer_boundaries() && codec.is_identity()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "codec ", codec.text(), ": the boundary is ", runnel::Name(format_.activation),
          "; codec ", LosslessCodec(format_).text(), " sends it as it is"));
    }
    RUNNEL_RETURN_IF_ERROR(CheckCodecFits(codec, format_, direction));
    RUNNEL_ASSIGN_OR_RETURN(codecs.made.emplace_back(), MakeCodec(codec));
    if (codec != RecipeCodec() || !codecs.of_levels.empty()) continue;
    for (const CodecId& level : run_.levels.Codecs(direction)) {
      RUNNEL_ASSIGN_OR_RETURN(codecs.of_levels.emplace_back(), MakeCodec(level));
    }
  }
  return codecs;
}

absl::StatusOr<std::unique_ptr<LinkCodecs>> LinkCodecs::Create(const Plan& plan, int stage,
                                                               LinkRun run,
                                                               const NumberFormat& format) {
  auto codecs = std::make_unique<LinkCodecs>();
  codecs->format_ = format;
  const uint64_t run_seed = run.seed;
  const int64_t dataset_samples = run.dataset_samples;
  codecs->run_ = std::move(run);
  const StagePlan& here = plan.stages[stage];
  Ends& forward = codecs->at(Direction::kForward);
  Ends& backward = codecs->at(Direction::kBackward);
  forward.key = {run_seed, RandomPurpose::kCodecForward, static_cast<uint64_t>(here.last_layer),
                 here.cap};
  backward.key = {run_seed, RandomPurpose::kCodecBackward,
                  static_cast<uint64_t>(here.first_layer - 1), here.cap};
  forward.sent_samples = forward.received_samples = {dataset_samples, run_seed};
  if (stage + 1 < static_cast<int>(plan.stages.size())) {
    RUNNEL_ASSIGN_OR_RETURN(forward.sends,
                            codecs->Make(plan.links[stage].codec_forward, Direction::kForward));
    RUNNEL_ASSIGN_OR_RETURN(backward.receives,
                            codecs->Make(plan.links[stage].codec_backward, Direction::kBackward));
  }
  if (stage > 0) {
    RUNNEL_ASSIGN_OR_RETURN(
        backward.sends, codecs->Make(plan.links[stage - 1].codec_backward, Direction::kBackward));
    RUNNEL_ASSIGN_OR_RETURN(forward.receives,
                            codecs->Make(plan.links[stage - 1].codec_forward, Direction::kForward));
  }
  if (format.integer_boundaries()) {
    RUNNEL_ASSIGN_OR_RETURN(codecs->evaluation_, MakeCodec(LosslessCodec(format)));
  }
  return codecs;
}

absl::StatusOr<const Codec*> LinkCodecs::SentCodec(Direction direction,
                                                   const MicroBatch& place) const {
  const Codecs& sends = at(direction).sends;
  if (!sends.HasLevels(place.epoch)) return sends.InEpoch(place.epoch);
  const GridBits bits = run_.levels.At(run_.changes, place.epoch, place.step);
  const std::string name = LevelCodec(direction, bits).text();
  for (const auto& codec : sends.of_levels) {
    if (codec->name() == name) return codec.get();
  }
  return absl::InternalError(absl::StrCat("codec recipe: step ", place.step, " has ", name,
                                          ", which no level of the run has"));
}

absl::StatusOr<const Codec*> LinkCodecs::ReceivedCodec(Direction direction, const MicroBatch& place,
                                                       const Shape& shape,
                                                       absl::Span<const std::byte> payload) const {
  const Codecs& receives = at(direction).receives;
  if (!receives.HasLevels(place.epoch)) return receives.InEpoch(place.epoch);
  const int bits = BitsInPayload(payload);
  const std::string said = LevelCodec(direction, {bits, bits}).text();
  const Codec* of_size = nullptr;
  for (const auto& codec : receives.of_levels) {
    const int64_t bytes = PayloadBytes(*codec, format_, direction, shape).value();
    if (bytes != static_cast<int64_t>(payload.size())) continue;
    of_size = codec.get();
    if (codec->name() == said) break;
  }
  // One that says other bits is refused by the codec that has its size.
  if (of_size != nullptr) return of_size;
  return absl::InvalidArgumentError(absl::StrCat("payload of codec recipe for shape ",
                                                 shape.ToString(), " has ", payload.size(),
                                                 " bytes, as at no level of the run"));
}

template <typename Coder, typename MakeFn>
void LinkCodecs::MakeCoder(const Codec& codec, Used<Coder>& used, MakeFn make) {
  if (used.coder != nullptr && used.made_by->name() == codec.name()) return;
  std::unique_ptr<Coder> made = make();
  if (used.coder != nullptr && GoesOnFrom(codec, used.made_by->name())) {
    // What one has saved, an heir takes.
    if (!made->RestoreState(used.coder->SaveState()).ok()) made = make();
  }
  used = {std::move(made), &codec};
}

Encoder& LinkCodecs::EncoderFor(const Codec& codec, Ends& ends) {
  MakeCoder(codec, ends.encoder, [&] { return codec.NewEncoder(ends.key); });
  return *ends.encoder.coder;
}

Decoder& LinkCodecs::DecoderFor(const Codec& codec, Ends& ends) {
  MakeCoder(codec, ends.decoder, [&] { return codec.NewDecoder(); });
  return *ends.decoder.coder;
}

absl::Status LinkCodecs::CheckTensor(Direction direction, const Shape& shape, size_t bytes) const {
  const int64_t needed = TensorBytes(direction, shape);
  if (static_cast<int64_t>(bytes) == needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("boundary tensor of shape ", shape.ToString(),
                                                 " has ", bytes, " bytes, needs ", needed));
}

absl::Status LinkCodecs::CheckPayload(Direction direction, const Codec& codec, const Shape& shape,
                                      size_t bytes) const {
  const int64_t needed = PayloadBytes(codec, format_, direction, shape).value();
  const auto has = static_cast<int64_t>(bytes);
  const bool may_be_less = codec.varies() && has >= SidePayloadBytes(format_, shape, direction);
  if (has == needed || (may_be_less && has < needed)) return absl::OkStatus();
  std::string beside;
  for (const SidePlace& place : SidePlaces(format_, shape, direction))
    absl::StrAppend(&beside, ", ", place.bytes, " of them ", place.value->name);
  return absl::InvalidArgumentError(absl::StrCat("payload of codec ", codec.name(), " for shape ",
                                                 shape.ToString(), " has ", bytes, " bytes, needs ",
                                                 needed, beside));
}

absl::StatusOr<size_t> LinkCodecs::Encode(Direction direction, const MicroBatch& place,
                                          const Shape& shape, absl::Span<const std::byte> tensor,
                                          absl::Span<std::byte> payload) {
  RUNNEL_ASSIGN_OR_RETURN(const Codec* sent, SentCodec(direction, place));
  const Codec& codec = *sent;
  RUNNEL_RETURN_IF_ERROR(CheckTensor(direction, shape, tensor.size()));
  RUNNEL_RETURN_IF_ERROR(CheckPayload(direction, codec, shape, payload.size()));
  const auto beside = static_cast<size_t>(SidePayloadBytes(format_, shape, direction));
  RUNNEL_ASSIGN_OR_RETURN(const size_t coded,
                          EncodeElements(codec, direction, place, shape, tensor,
                                         payload.first(payload.size() - beside)));
  RUNNEL_RETURN_IF_ERROR(CopyBeside(SidePlaces(format_, shape, direction), tensor,
                                    &SidePlace::memory_offset, payload.subspan(coded, beside),
                                    &SidePlace::payload_offset));
  return coded + beside;
}

absl::StatusOr<size_t> LinkCodecs::EncodeElements(const Codec& codec, Direction direction,
                                                  const MicroBatch& place, const Shape& shape,
                                                  absl::Span<const std::byte> tensor,
                                                  absl::Span<std::byte> payload) {
  Encoder& encoder = EncoderFor(codec, at(direction));
  if (codec.keeps_samples()) encoder.NameSamples(at(direction).sent_samples.Of(place));
  const DType type = format_.boundary(direction);
  TensorView x{type, shape, Layout::kRowMajor, 0,
               tensor.first(static_cast<size_t>(ValueBytes(type, shape)))};
  if (IsScaled(type)) x = ScaledView(shape, tensor);
  if (SendsAsItIs(codec, type)) {
    std::copy(x.bytes.begin(), x.bytes.end(), payload.begin());
    return payload.size();
  }
  if (type != DType::kFloat32 && !(IsScaled(type) && codec.takes_scaled())) {
    if (x.exponent > kMaxFloatExponent) {
      return absl::InvalidArgumentError(
          absl::StrCat("codec ", codec.name(), ": exponent ", x.exponent, " is beyond FP32"));
    }
    floats_.resize(static_cast<size_t>(shape.elements()));
    TypeOf(type).to_float(x.bytes, x.exponent, absl::MakeSpan(floats_));
    x = ViewOf(floats_, shape);
  }
  RUNNEL_RETURN_IF_ERROR(encoder.Encode(x, place.sequence, place.first_in_epoch, payload));
  return codec.varies() ? encoder.written() : payload.size();
}

absl::Status LinkCodecs::DecodeFloats(const Codec& codec, Direction direction,
                                      const MicroBatch& place, absl::Span<const std::byte> payload,
                                      const MutableTensorView& out) {
  if (!codec.keeps_samples() || run_.dataset_samples == 0) return codec.Decode(payload, out);
  Ends& ends = at(direction);
  return DecoderFor(codec, ends).Decode(payload, ends.received_samples.Of(place), out);
}

absl::Status LinkCodecs::DecodeElements(const Codec& codec, Direction direction,
                                        const MicroBatch& place,
                                        absl::Span<const std::byte> payload, const Shape& shape,
                                        absl::Span<std::byte> tensor) {
  const DType type = format_.boundary(direction);
  const auto elements = static_cast<size_t>(shape.elements());
  int32_t exponent = 0;
  if (SendsAsItIs(codec, type)) {
    std::copy(payload.begin(), payload.end(), tensor.begin());
    return absl::OkStatus();
  }
  if (type == DType::kFloat32) {
    return DecodeFloats(codec, direction, place, payload,
                        {type, shape, Layout::kRowMajor, 0, tensor.first(4 * elements)});
  }
  if (IsScaled(type) && codec.takes_scaled()) {
    RUNNEL_ASSIGN_OR_RETURN(exponent, codec.DecodeScaled(payload, shape, tensor.first(elements)));
  } else {
    floats_.resize(elements);
    RUNNEL_RETURN_IF_ERROR(DecodeFloats(codec, direction, place, payload,
                                        MutableViewOf(absl::MakeSpan(floats_), shape)));
    exponent = TypeOf(type).from_float(floats_, tensor);
  }
  if (IsScaled(type)) FinishScaled(shape, exponent, tensor);
  return absl::OkStatus();
}

absl::Status LinkCodecs::Decode(Direction direction, const MicroBatch& place,
                                absl::Span<const std::byte> payload, const Shape& shape,
                                absl::Span<std::byte> tensor) {
  RUNNEL_ASSIGN_OR_RETURN(const Codec* received, ReceivedCodec(direction, place, shape, payload));
  const Codec& codec = *received;
  RUNNEL_RETURN_IF_ERROR(CheckTensor(direction, shape, tensor.size()));
  RUNNEL_RETURN_IF_ERROR(CheckPayload(direction, codec, shape, payload.size()));
  const DType type = format_.boundary(direction);
  const auto beside = static_cast<size_t>(SidePayloadBytes(format_, shape, direction));
  // With another codec's tensor the sender's end has forgotten its samples too.
  if (!codec.keeps_samples()) at(direction).decoder = {};
  RUNNEL_RETURN_IF_ERROR(DecodeElements(codec, direction, place,
                                        payload.first(payload.size() - beside), shape, tensor));
  RUNNEL_RETURN_IF_ERROR(CopyBeside(SidePlaces(format_, shape, direction), payload.last(beside),
                                    &SidePlace::payload_offset, tensor, &SidePlace::memory_offset));
  // A gradient is the loss's with respect to the next stage's decoded input.
  Encoder* sender = at(Direction::kForward).encoder.coder.get();
  const bool is_heard = sender != nullptr && (sender->learns() || sender->masks());
  if (direction == Direction::kForward || IsScaled(type) || !is_heard) return absl::OkStatus();
  absl::Span<float> gradient(reinterpret_cast<float*>(tensor.data()),
                             static_cast<size_t>(shape.elements()));
  if (type != DType::kFloat32) {
    floats_.resize(gradient.size());
    gradient = absl::MakeSpan(floats_);
    TypeOf(type).to_float(tensor, 0, gradient);
  }
  if (sender->learns())
    RUNNEL_RETURN_IF_ERROR(sender->Learn(ViewOf(gradient, shape), place.sequence));
  if (!sender->masks()) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(sender->MaskGradient(gradient, place.sequence));
  if (type != DType::kFloat32) TypeOf(type).from_float(gradient, tensor);
  return absl::OkStatus();
}

absl::StatusOr<Payload> LinkCodecs::PackEvaluation(const Shape& shape, Payload from,
                                                   BufferPool& pool) const {
  const std::vector<SidePlace> places = SidePlaces(format_, shape, Direction::kForward);
  if (evaluation_ == nullptr && places.empty()) return from;
  RUNNEL_RETURN_IF_ERROR(CheckTensor(Direction::kForward, shape, from.size()));
  Payload packed = pool.Allocate(static_cast<size_t>(EvaluationBytes(shape)));
  const absl::Span<std::byte> bytes = packed.mutable_bytes();
  const size_t elements =
      bytes.size() - static_cast<size_t>(SidePayloadBytes(format_, shape, Direction::kForward));
  if (evaluation_ == nullptr) {
    std::copy_n(from.bytes().begin(), elements, bytes.begin());
  } else {
    RUNNEL_RETURN_IF_ERROR(evaluation_->NewEncoder({})->Encode(
        ScaledView(shape, from.bytes()), Sequence(0), true, bytes.first(elements)));
  }
  RUNNEL_RETURN_IF_ERROR(CopyBeside(places, from.bytes(), &SidePlace::memory_offset,
                                    bytes.subspan(elements), &SidePlace::payload_offset));
  return packed;
}

absl::StatusOr<Payload> LinkCodecs::UnpackEvaluation(const Shape& shape, Payload from,
                                                     BufferPool& pool) const {
  const std::vector<SidePlace> places = SidePlaces(format_, shape, Direction::kForward);
  if (evaluation_ == nullptr && places.empty()) return from;
  const auto needed = static_cast<size_t>(EvaluationBytes(shape));
  if (from.size() != needed) {
    return absl::InvalidArgumentError(absl::StrCat("evaluation of shape ", shape.ToString(),
                                                   " has ", from.size(), " bytes, needs ", needed));
  }
  Payload tensor = pool.Allocate(static_cast<size_t>(TensorBytes(Direction::kForward, shape)));
  const absl::Span<std::byte> bytes = tensor.mutable_bytes();
  const size_t elements =
      needed - static_cast<size_t>(SidePayloadBytes(format_, shape, Direction::kForward));
  if (evaluation_ == nullptr) {
    std::copy_n(from.bytes().begin(), elements, bytes.begin());
  } else {
    RUNNEL_ASSIGN_OR_RETURN(
        const int32_t exponent,
        evaluation_->DecodeScaled(from.bytes().first(elements), shape,
                                  bytes.first(static_cast<size_t>(shape.elements()))));
    FinishScaled(shape, exponent, bytes);
  }
  RUNNEL_RETURN_IF_ERROR(CopyBeside(places, from.bytes().subspan(elements),
                                    &SidePlace::payload_offset, bytes, &SidePlace::memory_offset));
  return tensor;
}

int64_t LinkCodecs::EvaluationBytes(const Shape& shape) const {
  const int64_t elements = evaluation_ == nullptr ? ValueBytes(format_.activation, shape)
                                                  : evaluation_->EncodedBytes(shape).value();
  return elements + SidePayloadBytes(format_, shape, Direction::kForward);
}

int64_t LinkCodecs::EncodedBytes(Direction direction, const MicroBatch& place,
                                 const Shape& shape) const {
  const Codec* codec = SentCodec(direction, place).value_or(nullptr);
  return codec == nullptr ? 0 : PayloadBytes(*codec, format_, direction, shape).value();
}

int64_t LinkCodecs::MaxReceivedBytes(Direction direction, const Shape& shape) const {
  const Codecs& receives = at(direction).receives;
  // Without a codec a tensor comes as it lies in memory, where what is beside it begins at multiples
  // of 64 bytes.
  const bool is_raw = !receives.made.empty() && receives.schedule.is_identity();
  int64_t most = is_raw ? TensorBytes(direction, shape) : 0;
  for (const auto* made : {&receives.made, &receives.of_levels}) {
    for (const auto& codec : *made)
      most = std::max(most, PayloadBytes(*codec, format_, direction, shape).value());
  }
  return most;
}

std::vector<EncoderState> LinkCodecs::SaveStates() const {
  std::vector<EncoderState> states;
  for (Direction direction : kDirections) {
    const Ends& ends = at(direction);
    if (!ends.sends.made.empty()) {
      const bool fresh = ends.encoder.coder == nullptr;
      const Codec& codec = fresh ? *ends.sends.made.front() : *ends.encoder.made_by;
      states.push_back({static_cast<int>(ends.key.boundary), direction, codec.name(),
                        fresh ? "" : ends.encoder.coder->SaveState()});
    }
    // While a codec keeps samples: of others the encoder alone has a state.
    if (ends.decoder.coder != nullptr) {
      states.push_back({boundary_above(), direction, ends.decoder.made_by->name(),
                        ends.decoder.coder->SaveState()});
    }
  }
  return states;
}

bool LinkCodecs::KeepsSamples(const Codecs& codecs) const {
  return run_.dataset_samples > 0 &&
         std::any_of(codecs.made.begin(), codecs.made.end(),
                     [](const auto& codec) { return codec->keeps_samples(); });
}

absl::Status LinkCodecs::RestoreStates(const std::vector<EncoderState>& states) {
  for (const EncoderState& state : states) {
    Ends& ends = at(state.direction);
    if (static_cast<int>(ends.key.boundary) == state.boundary) {
      if (const Codec* codec = HeirOf(state, ends.sends); codec != nullptr)
        RUNNEL_RETURN_IF_ERROR(EncoderFor(*codec, ends).RestoreState(state.state));
    }
    if (state.direction == Direction::kForward && boundary_above() == state.boundary &&
        KeepsSamples(ends.receives)) {
      const Codec* codec = HeirOf(state, ends.receives);
      if (codec != nullptr && codec->keeps_samples())
        RUNNEL_RETURN_IF_ERROR(DecoderFor(*codec, ends).RestoreState(state.state));
    }
  }
  return absl::OkStatus();
}

absl::Status LinkCodecs::BeginDryRun() {
  for (Ends& ends : ends_) {
    ends.kept_encoder = std::exchange(ends.encoder, {});
    ends.kept_decoder = std::exchange(ends.decoder, {});
    const auto copy = [](const auto& kept, auto& coder) {
      return coder.RestoreState(kept.coder->SaveState());
    };
    if (const auto& kept = ends.kept_encoder; kept.coder != nullptr)
      RUNNEL_RETURN_IF_ERROR(copy(kept, EncoderFor(*kept.made_by, ends)));
    if (const auto& kept = ends.kept_decoder; kept.coder != nullptr)
      RUNNEL_RETURN_IF_ERROR(copy(kept, DecoderFor(*kept.made_by, ends)));
  }
  return absl::OkStatus();
}

void LinkCodecs::EndDryRun() {
  for (Ends& ends : ends_) {
    ends.encoder = std::exchange(ends.kept_encoder, {});
    ends.decoder = std::exchange(ends.kept_decoder, {});
  }
}

}  // namespace runnel
