// How PipelineHost carries out what its StageRuntime decides: sends, actions of the lanes, reports.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/host/pipeline_host.h"
#include "worker/not_finite.h"
#include "worker/out_of_memory.h"

namespace runnel {
namespace {

std::string Diverged(Direction direction, const MicroBatch& place) {
  return absl::StrCat(direction == Direction::kForward ? "an activation" : "a gradient",
                      " of micro-batch ", place.sequence.value(),
                      " is not finite: training diverged; try a smaller --lr");
}

}  // namespace

void PipelineHost::Carry(SendEffect effect) {
  Frame frame;
  frame.header.kind = effect.kind;
  frame.header.generation = generation_;
  frame.header.sequence = effect.sequence;
  frame.header.samples = static_cast<uint32_t>(effect.samples);
  frame.payload = std::move(effect.payload);
  const int64_t bytes = kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size());
  Telemetry& counts = meter_.counts();
  if (effect.kind == FrameKind::kGradient) {
    ++counts.frames_up;
    counts.bytes_up += bytes;
    counts.raw_bytes_up += engine_->input_shape(effect.samples).elements() * 4;
  } else if (effect.kind == FrameKind::kActivation || !engine_->trains()) {
    ++counts.frames_down;
    counts.bytes_down += bytes;
    counts.raw_bytes_down += engine_->output_shape(effect.samples).elements() * 4;
  }
  links_.To(effect.peer)->session().Send(std::move(frame));
}

void PipelineHost::Carry(AcknowledgeEffect effect) {
  links_.To(effect.peer)->session().Acknowledge(effect.kind, generation_, effect.sequence);
}

void PipelineHost::Compute(bool counts, StageLanes::Purpose purpose,
                           std::function<absl::StatusOr<StageCompute::Output>()> work) {
  if (counts) meter_.BeginAction();
  lanes_.Compute(purpose, std::move(work),
                 [this, counts, kind = purpose.kind](absl::StatusOr<StageCompute::Output> output,
                                                     const TaskTime& time) {
                   if (counts && output.ok())
                     meter_.EndAction(kind, time, {.update_began_ns = output->update_began_ns});
                   ComputeFinished(std::move(output), time);
                 });
}

void PipelineHost::ComputeFinished(absl::StatusOr<StageCompute::Output> output,
                                   const TaskTime& time) {
  if (!output.ok()) {
    Fail(output.status());
    return;
  }
  const int64_t backwards = runtime_.backwards();
  const absl::Status status =
      runtime_.ComputeDone({std::move(output->tensor), output->loss_sum, output->correct,
                            std::move(output->counts), std::move(output->squares)});
  PumpBackward(backwards, time.end_ns, status);
}

void PipelineHost::PumpBackward(int64_t before, int64_t now_ns, const absl::Status& status) {
  const bool is_first = runtime_.backwards() != before && meter_.EndBackward(now_ns);
  Pump(loss_from_ == NotFinite::kNothing ? status : MarkNotFinite(status, loss_from_));
  if (is_first) events_.on_first_backward();
}

void PipelineHost::ReportWaiting() {
  const int64_t backwards = runtime_.backwards();
  const absl::Status status = runtime_.Waiting(
      links_.To(Peer::kDownstream)->session().unacknowledged(FrameKind::kActivation));
  PumpBackward(backwards, environment_.loop->clock().NowNanos(), status);
}

void PipelineHost::Carry(ForwardEffect effect) {
  if (runtime_.runs_dry()) {
    // A loss that is no number is for training to find.
    return Compute(false, {SpanKind::kDryRun},
                   [this, effect = std::move(effect)] { return ComputeForward(effect); });
  }
  const StageLanes::Purpose purpose{SpanKind::kForward, effect.place.sequence};
  Compute(true, purpose, [this, effect = std::move(effect)] { return Forward(effect); });
}

absl::Status PipelineHost::OfReceived(const absl::Status& status, Direction direction,
                                      const MicroBatch& place, const Payload& tensor) const {
  const bool is_forward = direction == Direction::kForward;
  const Shape shape =
      is_forward ? engine_->input_shape(place.samples) : engine_->output_shape(place.samples);
  if (status.ok() || (is_forward ? !has_upstream() : !has_downstream()) ||
      static_cast<int64_t>(tensor.size()) != codecs_->TensorBytes(direction, shape) ||
      HasNumbers(engine_->numbers(), direction, shape, tensor.bytes()))
    return status;
  return MarkNotFinite(absl::Status(status.code(), absl::StrCat(Diverged(direction, place), " (",
                                                                status.message(), ")")),
                       is_forward ? NotFinite::kUpstream : NotFinite::kDownstream);
}

absl::StatusOr<StageCompute::Output> PipelineHost::ComputeForward(const ForwardEffect& effect) {
  absl::StatusOr<StageCompute::Output> output =
      engine_->Forward(effect.place, effect.input, effect.labels);
  if (output.ok()) return output;
  return OfReceived(output.status(), Direction::kForward, effect.place, effect.input);
}

// An infinite loss becomes the runtime's error, which knows the step.
absl::StatusOr<StageCompute::Output> PipelineHost::Forward(const ForwardEffect& effect) {
  RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output, ComputeForward(effect));
  const NumberFormat& numbers = engine_->numbers();
  const int64_t samples = effect.place.samples;
  const bool has_number = HasNumbers(numbers, Direction::kForward, engine_->output_shape(samples),
                                     output.tensor.bytes());
  if (has_number && std::isfinite(output.loss_sum)) return output;
  const absl::Span<const std::byte> input = effect.input.bytes();
  const bool enters_well =
      runtime_.first_stage()
          ? AllFinite(DType::kFloat32, input)
          : HasNumbers(numbers, Direction::kForward, engine_->input_shape(samples), input);
  loss_from_ = enters_well ? NotFinite::kOwn : NotFinite::kUpstream;
  if (has_number) return output;
  return MarkNotFinite(absl::InvalidArgumentError(Diverged(Direction::kForward, effect.place)),
                       loss_from_);
}

void PipelineHost::Carry(InputGradientEffect effect) {
  const bool is_dry = runtime_.runs_dry();
  const StageLanes::Purpose purpose{is_dry ? SpanKind::kDryRun : SpanKind::kInputGradient,
                                    effect.place.sequence};
  Compute(!is_dry, purpose,
          [this, effect = std::move(effect)]() -> absl::StatusOr<StageCompute::Output> {
            absl::StatusOr<StageCompute::Output> output =
                engine_->InputGradient(effect.place, effect.output_gradient);
            if (output.ok()) return output;
            return OfReceived(output.status(), Direction::kBackward, effect.place,
                              effect.output_gradient);
          });
}

void PipelineHost::Carry(WeightGradientEffect effect) {
  const StageLanes::Purpose purpose{SpanKind::kWeightGradient, effect.place.sequence};
  Compute(true, purpose,
          [this, effect = std::move(effect)]() -> absl::StatusOr<StageCompute::Output> {
            RUNNEL_RETURN_IF_ERROR(engine_->WeightGradient(effect.place, effect.step));
            StageCompute::Output output;
            output.update_began_ns = engine_->TakeUpdateBegin();
            if (effect.sums_squares) {
              RUNNEL_ASSIGN_OR_RETURN(output.squares, engine_->GradientSquares());
            }
            return output;
          });
}

void PipelineHost::Carry(StepEffect effect) {
  const StageLanes::Purpose purpose{SpanKind::kStep, effect.place.sequence};
  Compute(true, purpose, [this, effect]() -> absl::StatusOr<StageCompute::Output> {
    RUNNEL_RETURN_IF_ERROR(engine_->Step(effect.place, effect.gradient_square));
    StageCompute::Output output;
    output.update_began_ns = engine_->TakeUpdateBegin();
    return output;
  });
}

void PipelineHost::Carry(EvaluateEffect effect) {
  const StageLanes::Purpose purpose{SpanKind::kEvaluation, effect.sequence};
  Compute(
      !engine_->trains(), purpose,
      [this, effect = std::move(effect), upstream = has_upstream(),
       downstream = has_downstream()]() -> absl::StatusOr<StageCompute::Output> {
        Payload input = effect.input;
        if (upstream) {
          RUNNEL_ASSIGN_OR_RETURN(input,
                                  codecs_->UnpackEvaluation(engine_->input_shape(effect.samples),
                                                            std::move(input), *environment_.pool));
        }
        RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output,
                                engine_->Evaluate(effect.samples, std::move(input), effect.labels));
        if (downstream) {
          RUNNEL_ASSIGN_OR_RETURN(
              output.tensor, codecs_->PackEvaluation(engine_->output_shape(effect.samples),
                                                     std::move(output.tensor), *environment_.pool));
        }
        return output;
      });
}

void PipelineHost::Carry(EncodeEffect effect) {
  const Direction direction = effect.direction;
  const MicroBatch place = effect.place;
  const SpanKind kind =
      direction == Direction::kForward ? SpanKind::kEncodeActivation : SpanKind::kEncodeGradient;
  lanes_.Code(
      {kind, place.sequence}, [this, effect = std::move(effect)] { return Encode(effect); },
      [this, direction, kind, place](absl::StatusOr<Payload> payload, int64_t took_ns) {
        if (!runtime_.runs_dry()) meter_.EndCoding(kind, took_ns);
        Pump(payload.ok()
                 ? runtime_.Encoded(direction, place.sequence, place.samples, *std::move(payload))
                 : payload.status());
      });
}

absl::StatusOr<Payload> PipelineHost::Encode(const EncodeEffect& effect) {
  const MicroBatch& place = effect.place;
  const Shape shape = effect.direction == Direction::kForward ? engine_->output_shape(place.samples)
                                                              : engine_->input_shape(place.samples);
  absl::StatusOr<Payload> encoded =
      WithinMemory("it encoded a tensor", [&]() -> absl::StatusOr<Payload> {
        Payload payload = environment_.pool->Allocate(
            static_cast<size_t>(codecs_->EncodedBytes(effect.direction, place, shape)));
        RUNNEL_ASSIGN_OR_RETURN(const size_t bytes,
                                codecs_->Encode(effect.direction, place, shape,
                                                effect.tensor.bytes(), payload.mutable_bytes()));
        if (bytes == payload.size()) return payload;
        Payload shorter = environment_.pool->Allocate(bytes);
        std::copy_n(payload.bytes().begin(), bytes, shorter.mutable_bytes().begin());
        return shorter;
      });
  if (encoded.ok() ||
      HasNumbers(engine_->numbers(), effect.direction, shape, effect.tensor.bytes()))
    return encoded;
  return MarkNotFinite(
      absl::Status(encoded.status().code(), absl::StrCat(Diverged(effect.direction, place), " (",
                                                         encoded.status().message(), ")")),
      NotFinite::kOwn);
}

void PipelineHost::Carry(DecodeEffect effect) {
  const Direction direction = effect.direction;
  const Sequence sequence = effect.place.sequence;
  const SpanKind kind =
      direction == Direction::kForward ? SpanKind::kDecodeActivation : SpanKind::kDecodeGradient;
  lanes_.Code(
      {kind, sequence}, [this, effect = std::move(effect)] { return Decode(effect); },
      [this, direction, kind, sequence](absl::StatusOr<Payload> tensor, int64_t took_ns) {
        if (!runtime_.runs_dry()) meter_.EndCoding(kind, took_ns);
        Pump(tensor.ok() ? runtime_.Decoded(direction, sequence, *std::move(tensor))
                         : tensor.status());
      });
}

absl::StatusOr<Payload> PipelineHost::Decode(const DecodeEffect& effect) {
  const MicroBatch& place = effect.place;
  const Shape shape = effect.direction == Direction::kForward
                          ? engine_->input_shape(place.samples)
                          : engine_->output_shape(place.samples);
  return WithinMemory("it decoded a tensor", [&]() -> absl::StatusOr<Payload> {
    Payload tensor = environment_.pool->Allocate(
        static_cast<size_t>(codecs_->TensorBytes(effect.direction, shape)));
    RUNNEL_RETURN_IF_ERROR(codecs_->Decode(effect.direction, place, effect.payload.bytes(), shape,
                                           tensor.mutable_bytes()));
    return tensor;
  });
}

void PipelineHost::Carry(BarrierEffect effect) {
  meter_.Pause();
  events_.on_barrier(effect.sequence);
}

void PipelineHost::Carry(EvaluationDoneEffect effect) {
  events_.on_evaluation({generation_, effect.first, effect.loss_sum, effect.correct, effect.samples,
                         std::move(effect.counts)});
}

void PipelineHost::Carry(BeginDryRunEffect) {
  Compute(false, {SpanKind::kDryRun}, [this]() -> absl::StatusOr<StageCompute::Output> {
    RUNNEL_RETURN_IF_ERROR(engine_->BeginDryRun());
    RUNNEL_RETURN_IF_ERROR(codecs_->BeginDryRun());
    return StageCompute::Output();
  });
}

void PipelineHost::Carry(CompareGradientEffect effect) {
  Compute(false, {SpanKind::kDryRun}, [this, effect]() -> absl::StatusOr<StageCompute::Output> {
    RUNNEL_RETURN_IF_ERROR(engine_->WeightGradient(effect.place, /*step=*/false));
    RUNNEL_RETURN_IF_ERROR(engine_->ReadGradients(comparison_.last));
    if (effect.is_coded) {
      comparison_.gradients.AddCoded(comparison_.last);
    } else {
      comparison_.gradients.AddExact(comparison_.last);
    }
    return StageCompute::Output();
  });
}

void PipelineHost::Carry(EndDryRunEffect) {
  Compute(false, {SpanKind::kDryRun}, [this]() -> absl::StatusOr<StageCompute::Output> {
    codecs_->EndDryRun();
    RUNNEL_RETURN_IF_ERROR(engine_->EndDryRun());
    return StageCompute::Output();
  });
}

void PipelineHost::Carry(DryRunDoneEffect effect) {
  events_.on_dry_run({generation_, effect.first, std::exchange(comparison_, {}).gradients.sums()});
}

}  // namespace runnel
