#include "worker/stage/dry_run/stage_dry_run.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

absl::Status OutOfOrder(FrameKind kind, Sequence sequence) {
  return absl::InvalidArgumentError(absl::StrCat("pass ", sequence.value(), " of kind ",
                                                 static_cast<int>(kind),
                                                 " of a dry run is out of order"));
}

}  // namespace

void StageDryRun::Begin(Sequence first, std::vector<MicroBatch> places, const CodedWays& coded,
                        std::vector<Effect>& effects) {
  first_ = first;
  coded_ = coded;
  next_ = first.value();
  places_ = std::move(places);
  // Each has a gradient of its own, whatever its place in a step.
  for (MicroBatch& place : places_) place.first_in_step = true;
  is_passed_ = false;
  phase_ = Phase::kOpening;
  effects.push_back(BeginDryRunEffect{});
}

absl::Status StageDryRun::Arrived(FrameKind kind, Sequence sequence, Payload payload,
                                  std::vector<Effect>& effects) {
  if (kind == FrameKind::kDryGradient) {
    if (phase_ != Phase::kGradient || sequence.value() != next_) return OutOfOrder(kind, sequence);
    effects.push_back(AcknowledgeEffect{Peer::kDownstream, kind, sequence});
    if (Decodes(Direction::kBackward)) {
      effects.push_back(DecodeEffect{Direction::kBackward, place(), std::move(payload)});
    } else {
      StartInputGradient(std::move(payload), effects);
    }
    return absl::OkStatus();
  }
  if (sequence.value() < next_) return OutOfOrder(kind, sequence);
  if (kind == FrameKind::kDryLabels) {
    arrived_.AddLabels(sequence.value(), std::move(payload));
  } else {
    arrived_.AddInput(sequence.value(), std::move(payload));
  }
  if (phase_ == Phase::kInput) TakeInput(effects);
  return absl::OkStatus();
}

void StageDryRun::TakeInput(std::vector<Effect>& effects) {
  std::optional<Arrivals::Batch> arrived = arrived_.Take(next_, ways_.has_loss);
  if (!arrived.has_value()) return;
  const Sequence sequence(next_);
  effects.push_back(AcknowledgeEffect{
      ways_.first_stage ? Peer::kFeed : Peer::kUpstream,
      ways_.first_stage ? FrameKind::kDryInput : FrameKind::kDryActivation, sequence});
  if (ways_.has_loss)
    effects.push_back(AcknowledgeEffect{Peer::kFeed, FrameKind::kDryLabels, sequence});
  labels_ = std::move(arrived->labels);
  phase_ = Phase::kForward;
  if (Decodes(Direction::kForward)) {
    effects.push_back(DecodeEffect{Direction::kForward, place(), std::move(arrived->input)});
  } else {
    StartForward(std::move(arrived->input), effects);
  }
}

void StageDryRun::Decoded(Direction direction, Payload tensor, std::vector<Effect>& effects) {
  if (direction == Direction::kForward) {
    StartForward(std::move(tensor), effects);
  } else {
    StartInputGradient(std::move(tensor), effects);
  }
}

void StageDryRun::StartForward(Payload input, std::vector<Effect>& effects) {
  effects.push_back(ForwardEffect{place(), place().step, std::move(input), std::move(labels_)});
}

void StageDryRun::StartInputGradient(Payload gradient, std::vector<Effect>& effects) {
  phase_ = Phase::kInputGradient;
  effects.push_back(InputGradientEffect{place(), std::move(gradient)});
}

void StageDryRun::Computed(ComputeResult result, std::vector<Effect>& effects) {
  switch (phase_) {
    case Phase::kOpening:
      phase_ = Phase::kInput;
      return TakeInput(effects);
    case Phase::kForward:
      if (ways_.has_loss) return StartInputGradient({}, effects);
      phase_ = Phase::kGradient;
      Emit(Direction::kForward, std::move(result.tensor), effects);
      if (ways_.forward_only) FinishPass(effects);
      return;
    case Phase::kInputGradient:
      if (ways_.sends_gradients) Emit(Direction::kBackward, std::move(result.tensor), effects);
      phase_ = Phase::kWeightGradient;
      effects.push_back(CompareGradientEffect{place(), is_coded()});
      return;
    case Phase::kWeightGradient:
      return FinishPass(effects);
    case Phase::kClosing:
      phase_ = Phase::kNone;
      effects.push_back(DryRunDoneEffect{first_});
      return;
    default:
      return;
  }
}

void StageDryRun::Emit(Direction direction, Payload tensor, std::vector<Effect>& effects) {
  if (!Encodes(direction)) return Send(direction, std::move(tensor), effects);
  ++encoding_;
  effects.push_back(EncodeEffect{direction, place(), std::move(tensor)});
}

void StageDryRun::Encoded(Direction direction, Payload payload, std::vector<Effect>& effects) {
  --encoding_;
  Send(direction, std::move(payload), effects);
  GoOn(effects);
}

void StageDryRun::Send(Direction direction, Payload payload, std::vector<Effect>& effects) const {
  const bool is_forward = direction == Direction::kForward;
  effects.push_back(SendEffect{is_forward ? Peer::kDownstream : Peer::kUpstream,
                               is_forward ? FrameKind::kDryActivation : FrameKind::kDryGradient,
                               Sequence(next_), place().samples, std::move(payload)});
}

void StageDryRun::FinishPass(std::vector<Effect>& effects) {
  ++passes_;
  is_passed_ = true;
  GoOn(effects);
}

void StageDryRun::GoOn(std::vector<Effect>& effects) {
  if (!is_passed_ || encoding_ > 0) return;
  is_passed_ = false;
  if (++next_ < first_.value() + static_cast<int64_t>(places_.size()) * kDryPasses) {
    phase_ = Phase::kInput;
    return TakeInput(effects);
  }
  phase_ = Phase::kClosing;
  effects.push_back(EndDryRunEffect{});
}

}  // namespace runnel
