#include "worker/stage/stage_runtime.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "proto/base/plan/next_action.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {
namespace {

// Whether an encoder of these codecs must see the gradients of its payloads.
bool AnyNeedsGradients(const CodecSchedule& codecs) {
  return std::any_of(codecs.steps().begin(), codecs.steps().end(), [](const CodecStep& step) {
    const CodecRow* row = FindCodecFamily(step.codec.family);
    return row != nullptr && (row->learns || row->masks);
  });
}

// The peers that receive and send tensors in this direction.
Peer ReceiverOf(Direction direction) {
  return direction == Direction::kForward ? Peer::kDownstream : Peer::kUpstream;
}
Peer SenderOf(Direction direction) {
  return direction == Direction::kForward ? Peer::kUpstream : Peer::kDownstream;
}

}  // namespace

StageRuntime::StageRuntime(StageRuntimeOptions options)
    : options_(std::move(options)),
      limit_(options_.first_sequence.value()),
      done_{limit_, limit_, limit_},
      sent_(limit_),
      version_(options_.batching.Locate(options_.first_sequence).step),
      evaluation_(first_stage(), has_loss(), options_.eval_batch_size, options_.eval_samples),
      dry_run_(DryWays()),
      norm_({has_loss(), sends_gradients()}) {}

bool StageRuntime::Decodes(Direction direction) const {
  if (direction == Direction::kForward) {
    return !first_stage() && !options_.plan.links[options_.stage - 1].codec_forward.is_identity();
  }
  if (has_loss() || forward_only()) return false;
  const LinkPlan& link = options_.plan.links[options_.stage];
  return !link.codec_backward.is_identity() || AnyNeedsGradients(link.codec_forward);
}
bool StageRuntime::Encodes(Direction direction) const {
  if (direction == Direction::kForward) {
    return !has_loss() && !options_.plan.links[options_.stage].codec_forward.is_identity();
  }
  return sends_gradients() && !options_.plan.links[options_.stage - 1].codec_backward.is_identity();
}

StageDryRun::Ways StageRuntime::DryWays() const {
  StageDryRun::Ways ways{options_.stage, first_stage(), has_loss(), forward_only(),
                         sends_gradients()};
  for (const Direction direction : kDirections) {
    ways.encodes[static_cast<int>(direction)] = Encodes(direction);
    ways.decodes[static_cast<int>(direction)] = Decodes(direction);
  }
  return ways;
}

absl::Status StageRuntime::Fail(std::string what) {
  failed_ = true;
  effects_.clear();
  return absl::InvalidArgumentError(absl::StrCat("stage ", options_.stage, ": ", what));
}

std::vector<Effect> StageRuntime::TakeEffects() { return std::exchange(effects_, {}); }

absl::Status StageRuntime::RunUntil(Sequence limit) {
  if (failed_) return absl::OkStatus();
  if (limit.value() < limit_)
    return Fail(absl::StrCat("grant ", limit.value(), " is behind ", limit_));
  if (evaluation_.under_way() || dry_run_.under_way())
    return Fail("grant during an evaluation or a dry run");
  limit_ = limit.value();
  barrier_reported_ = false;
  Advance();
  return absl::OkStatus();
}

absl::Status StageRuntime::Evaluate(Sequence first, int64_t micro_batches) {
  if (failed_) return absl::OkStatus();
  if (!barrier_reported_ || dry_run_.under_way() || micro_batches < 1)
    return Fail("evaluation away from a barrier, or of nothing");
  evaluation_.Begin(first, micro_batches);
  AdvanceEvaluation();
  return absl::OkStatus();
}

absl::Status StageRuntime::DryRun(Sequence first, int64_t micro_batches, const CodedWays& coded) {
  if (failed_) return absl::OkStatus();
  if (!barrier_reported_ || evaluation_.under_way() || dry_run_.under_way() || micro_batches < 1)
    return Fail("dry run away from a barrier, or of nothing");
  std::vector<MicroBatch> places;
  for (int64_t i = 0; i < micro_batches; ++i)
    places.push_back(options_.batching.Locate(Sequence(limit_ + i)));
  dry_run_.Begin(first, std::move(places), coded, effects_);
  return absl::OkStatus();
}

absl::Status StageRuntime::CheckArrival(FrameKind kind, Sequence sequence, int64_t samples) const {
  const bool fits = kind == FrameKind::kGradient     ? !has_loss() && !forward_only()
                    : kind == FrameKind::kActivation ? !first_stage()
                    : kind == FrameKind::kInput || kind == FrameKind::kEvalInput   ? first_stage()
                    : kind == FrameKind::kLabels || kind == FrameKind::kEvalLabels ? has_loss()
                    : kind == FrameKind::kEvalActivation                           ? !first_stage()
                    : kind == FrameKind::kDryInput                                 ? first_stage()
                    : kind == FrameKind::kDryActivation                            ? !first_stage()
                    : kind == FrameKind::kDryGradient ? !has_loss() && !forward_only()
                    : kind == FrameKind::kDryLabels   ? has_loss()
                    : kind == FrameKind::kGradientSquares
                        ? options_.clips && !has_loss() && !forward_only()
                    : kind == FrameKind::kGradientNorm ? options_.clips && sends_gradients()
                                                       : false;
  if (!fits)
    return absl::InvalidArgumentError(
        absl::StrCat("frame kind ", static_cast<int>(kind), " does not belong here"));
  if (kind == FrameKind::kEvalInput || kind == FrameKind::kEvalLabels ||
      kind == FrameKind::kEvalActivation || IsDry(kind) || IsOfClipping(kind)) {
    return absl::OkStatus();
  }
  if (samples != options_.batching.Locate(sequence).samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro-batch ", sequence.value(), " came with ", samples, " samples"));
  }
  const bool gradient = kind == FrameKind::kGradient;
  const int64_t next = gradient ? done_.input_gradients : done_.forwards;
  if (sequence.value() < next || (gradient && sequence.value() >= done_.forwards)) {
    return absl::InvalidArgumentError(absl::StrCat("micro-batch ", sequence.value(), " of kind ",
                                                   static_cast<int>(kind),
                                                   " is out of order, next is ", next));
  }
  // The stage before has at most its cap in flight, and has done no input-gradient that this one
  // has not; where it makes none, no micro-batch is done whose forward has not begun here.
  const int64_t begun = done_.forwards + (running_ == Running::kForward ? 1 : 0);
  const int64_t done = sends_gradients() ? done_.input_gradients : begun;
  if (kind == FrameKind::kActivation &&
      sequence.value() >= done + options_.plan.stages[options_.stage - 1].cap) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro-batch ", sequence.value(), " is beyond the cap"));
  }
  return absl::OkStatus();
}

absl::Status StageRuntime::Arrived(FrameKind kind, Sequence sequence, int64_t samples,
                                   Payload payload) {
  if (failed_) return absl::OkStatus();
  if (absl::Status status = CheckArrival(kind, sequence, samples); !status.ok()) {
    return Fail(std::string(status.message()));
  }
  if (IsDry(kind)) {
    const absl::Status taken = dry_run_.Arrived(kind, sequence, std::move(payload), effects_);
    return taken.ok() ? taken : Fail(std::string(taken.message()));
  }
  const MicroBatch place = options_.batching.Locate(sequence);
  if (IsOfClipping(kind)) {
    const absl::Status taken = norm_.Arrived(kind, place, version_, payload, effects_);
    if (!taken.ok()) return Fail(std::string(taken.message()));
    if (norm_.steps()) running_ = Running::kStep;
    return taken;
  }
  switch (kind) {
    case FrameKind::kInput:
      arrived_.AddInput(sequence.value(), std::move(payload));
      break;
    case FrameKind::kLabels:
      arrived_.AddLabels(sequence.value(), std::move(payload));
      break;
    case FrameKind::kActivation:
    case FrameKind::kGradient: {
      const Direction direction =
          kind == FrameKind::kActivation ? Direction::kForward : Direction::kBackward;
      if (Decodes(direction)) {
        ++codec_outstanding_;
        effects_.push_back(DecodeEffect{direction, place, std::move(payload)});
        return absl::OkStatus();
      }
      Accept(direction, place, std::move(payload));
      break;
    }
    default:
      if (absl::Status status = evaluation_.Arrived(kind, sequence, samples, std::move(payload));
          !status.ok())
        return Fail(std::string(status.message()));
      AdvanceEvaluation();
      return absl::OkStatus();
  }
  Advance();
  return absl::OkStatus();
}

// A boundary tensor is here in the form that compute takes; its encoded bytes are no longer needed.
void StageRuntime::Accept(Direction direction, MicroBatch place, Payload payload) {
  if (direction == Direction::kForward) {
    arrived_.AddInput(place.sequence.value(), std::move(payload));
  } else {
    gradients_[place.sequence.value()] = std::move(payload);
  }
  if (direction == Direction::kForward && acknowledges_forwards()) return;
  effects_.push_back(AcknowledgeEffect{SenderOf(direction), KindOf(direction), place.sequence});
}

absl::Status StageRuntime::Decoded(Direction direction, Sequence sequence, Payload tensor) {
  if (failed_) return absl::OkStatus();
  if (dry_run_.under_way()) {
    dry_run_.Decoded(direction, std::move(tensor), effects_);
    return absl::OkStatus();
  }
  --codec_outstanding_;
  Accept(direction, options_.batching.Locate(sequence), std::move(tensor));
  Advance();
  return absl::OkStatus();
}

absl::Status StageRuntime::Encoded(Direction direction, Sequence sequence, int64_t samples,
                                   Payload payload) {
  if (failed_) return absl::OkStatus();
  if (dry_run_.under_way()) {
    dry_run_.Encoded(direction, std::move(payload), effects_);
    return absl::OkStatus();
  }
  --codec_outstanding_;
  Send(direction, sequence, samples, std::move(payload));
  Advance();
  return absl::OkStatus();
}

void StageRuntime::Send(Direction direction, Sequence sequence, int64_t samples, Payload payload) {
  if (direction == Direction::kForward) sent_ = sequence.value() + 1;
  effects_.push_back(
      SendEffect{ReceiverOf(direction), KindOf(direction), sequence, samples, std::move(payload)});
}

absl::Status StageRuntime::Waiting(int64_t activations) {
  if (failed_ || !forward_only()) return absl::OkStatus();
  done_.input_gradients = done_.weight_gradients = sent_ - activations;
  Advance();
  return absl::OkStatus();
}

// A boundary tensor leaves: through the codec lane, or as it is.
void StageRuntime::Emit(Direction direction, const MicroBatch& place, Payload tensor) {
  if (Encodes(direction)) {
    ++codec_outstanding_;
    effects_.push_back(EncodeEffect{direction, place, std::move(tensor)});
    return;
  }
  Send(direction, place.sequence, place.samples, std::move(tensor));
}

absl::Status StageRuntime::ComputeDone(ComputeResult result) {
  if (failed_) return absl::OkStatus();
  if (dry_run_.under_way()) {
    dry_run_.Computed(std::move(result), effects_);
    return absl::OkStatus();
  }
  const Running finished = std::exchange(running_, Running::kNothing);
  // An evaluation may find an infinite loss: that is news, not the end.
  if (finished == Running::kForward && !std::isfinite(result.loss_sum)) {
    return Fail(absl::StrCat("the loss is not finite at step ",
                             options_.batching.Locate(Sequence(done_.forwards)).step,
                             ": training diverged; try a smaller --lr"));
  }
  switch (finished) {
    case Running::kForward:
      FinishForward(std::move(result));
      break;
    case Running::kInputGradient:
      FinishInputGradient(std::move(result));
      break;
    case Running::kWeightGradient:
      FinishWeightGradient(std::move(result));
      break;
    case Running::kStep:
      norm_.End();
      ++version_;
      break;
    case Running::kEvaluate:
      evaluation_.Finish(std::move(result), effects_);
      AdvanceEvaluation();
      return absl::OkStatus();
    case Running::kNothing:
      return Fail("a completion without an action");
  }
  Advance();
  return absl::OkStatus();
}

void StageRuntime::FinishForward(ComputeResult result) {
  const MicroBatch place = options_.batching.Locate(Sequence(done_.forwards++));
  if (has_loss()) {
    loss_.loss_sum += result.loss_sum;
    loss_.correct += result.correct;
    loss_.samples += place.samples;
  } else {
    Emit(Direction::kForward, place, std::move(result.tensor));
  }
}

void StageRuntime::FinishInputGradient(ComputeResult result) {
  const MicroBatch place = options_.batching.Locate(Sequence(done_.input_gradients++));
  if (sends_gradients()) Emit(Direction::kBackward, place, std::move(result.tensor));
}

void StageRuntime::FinishWeightGradient(ComputeResult result) {
  const MicroBatch place = options_.batching.Locate(Sequence(done_.weight_gradients++));
  if (!place.last_in_step) return;
  if (!options_.clips) {
    ++version_;
    return;
  }
  norm_.Begin(place, std::move(result.squares), effects_);
  if (norm_.steps()) running_ = Running::kStep;
}

// The pipeline's next drain: the granted barrier; for a synchronous schedule the end of the
// mini-batch, except at a stage where nothing steps.
int64_t StageRuntime::Boundary() const {
  if (!options_.plan.drains_each_step || forward_only()) return limit_;
  const int64_t step = options_.batching.Locate(Sequence(done_.weight_gradients)).step;
  return std::min(limit_, options_.batching.FirstSequence(step + 1).value());
}

void StageRuntime::Advance() {
  if (running_ != Running::kNothing || norm_.under_way() || barrier_reported_) return;
  switch (NextAction(plan().order(), Boundary(), done_)) {
    case Action::kForward:
      StartForward();
      return;
    case Action::kInputGradient:
      if (!forward_only()) StartInputGradient();
      return;
    case Action::kWeightGradient:
      StartWeightGradient();
      return;
    case Action::kDrained:
      if (codec_outstanding_ > 0) return;
      barrier_reported_ = true;
      effects_.push_back(BarrierEffect{Sequence(limit_)});
      return;
  }
}

void StageRuntime::StartForward() {
  std::optional<Arrivals::Batch> arrived = arrived_.Take(done_.forwards, has_loss());
  if (!arrived.has_value()) return;
  const MicroBatch place = options_.batching.Locate(Sequence(done_.forwards));
  if (first_stage())
    effects_.push_back(AcknowledgeEffect{Peer::kFeed, FrameKind::kInput, place.sequence});
  if (acknowledges_forwards())
    effects_.push_back(AcknowledgeEffect{Peer::kUpstream, FrameKind::kActivation, place.sequence});
  if (has_loss())
    effects_.push_back(AcknowledgeEffect{Peer::kFeed, FrameKind::kLabels, place.sequence});
  running_ = Running::kForward;
  effects_.push_back(
      ForwardEffect{place, version_, std::move(arrived->input), std::move(arrived->labels)});
}

void StageRuntime::StartInputGradient() {
  InputGradientEffect effect{options_.batching.Locate(Sequence(done_.input_gradients)), {}};
  if (!has_loss()) {
    const auto gradient = gradients_.find(done_.input_gradients);
    if (gradient == gradients_.end()) return;
    effect.output_gradient = std::move(gradient->second);
    gradients_.erase(gradient);
  }
  running_ = Running::kInputGradient;
  effects_.push_back(std::move(effect));
}

void StageRuntime::StartWeightGradient() {
  const MicroBatch place = options_.batching.Locate(Sequence(done_.weight_gradients));
  running_ = Running::kWeightGradient;
  effects_.push_back(WeightGradientEffect{place, place.last_in_step && !options_.clips,
                                          place.last_in_step && options_.clips});
}

void StageRuntime::AdvanceEvaluation() {
  if (running_ == Running::kNothing && evaluation_.Start(effects_)) running_ = Running::kEvaluate;
}

}  // namespace runnel
