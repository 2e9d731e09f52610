#include "worker/host/plain_host.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "worker/frame_limits.h"

namespace runnel {

PlainHost::PlainHost(const PrepareStage& stage, const StageEnvironment& environment,
                     const Batching& batching, std::unique_ptr<StageEngine> engine,
                     StageEvents events)
    : environment_(environment),
      greeting_(stage.link_greeting),
      batching_(batching),
      generation_(stage.plan.generation),
      engine_(std::move(engine)),
      events_(std::move(events)),
      meter_(&environment.loop->clock(), generation_,
             {engine_->is_emulated() ? nullptr : environment.energy,
              engine_->ModelJoules(batching_.Locate(stage.first_sequence).samples),
              stage.first_sequence}),
      lanes_(environment.loop, environment.spans, environment.make_lane, /*codes_apart=*/false) {
  training_.next = training_.limit = stage.first_sequence.value();
  StageFrameSizes sizes;
  sizes.first_stage = true;
  sizes.labels_per_sample = LabelsPerSample(engine_->output_shape(1));
  for (int64_t samples :
       ShapeSizes(batching_, stage.training.eval_batch_size, stage.eval_samples)) {
    sizes.by_samples.push_back({samples, engine_->input_shape(samples).elements() * 4, 0, 0});
  }
  environment_.limits->Set(AllowedPayloads(sizes));
}

void PlainHost::Detach() {
  lanes_.Detach();
  feed_.reset();
}

void PlainHost::Start() {
  LinkShell::Options options;
  options.peer = CentralSubject().ToString();
  feed_ = std::make_unique<LinkShell>(
      environment_.loop, environment_.limits, std::move(options),
      [this](Frame frame) { Deliver(std::move(frame)); },
      [this](const absl::Status& status) { Fail(status); });
  feed_->session().StartGeneration(generation_);
}

void PlainHost::Attach(const std::string& role, std::shared_ptr<LoopConnection> connection) {
  if (role != "feed") {
    connection->Close();
    return;
  }
  connection->connection()->Send(MakeHello({greeting_, role})).IgnoreError();
  feed_->Attach(std::move(connection));
  if (!std::exchange(ready_, true)) events_.on_ready();
}

void PlainHost::Fail(const absl::Status& status) {
  if (!std::exchange(failed_, true)) events_.on_failed(status);
}

absl::Status PlainHost::RunUntil(Sequence limit) {
  training_.limit = limit.value();
  meter_.Resume();
  Advance();
  return absl::OkStatus();
}

absl::Status PlainHost::Evaluate(Sequence first, int64_t micro_batches) {
  evaluation_ = {.generation = generation_, .first = first};
  evaluating_.next = first.value();
  evaluating_.limit = first.value() + micro_batches;
  Advance();
  return absl::OkStatus();
}

void PlainHost::Deliver(Frame frame) {
  const FrameHeader& header = frame.header;
  const bool eval = header.kind == FrameKind::kEvalInput || header.kind == FrameKind::kEvalLabels;
  Queue& queue = eval ? evaluating_ : training_;
  const int64_t sequence = header.sequence.value();
  if (!eval && header.samples != batching_.Locate(header.sequence).samples) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("micro-batch ", sequence, " came with ", header.samples, " samples")));
    return;
  }
  queue.samples[sequence] = header.samples;
  if (header.kind == queue.labels_kind) {
    queue.arrived.AddLabels(sequence, std::move(frame.payload));
  } else {
    queue.arrived.AddInput(sequence, std::move(frame.payload));
  }
  Advance();
}

void PlainHost::Advance() {
  if (computing() || failed_) return;
  for (Queue* queue : {&training_, &evaluating_}) {
    if (queue->next >= queue->limit) continue;
    if (auto arrived = queue->arrived.Take(queue->next, /*has_labels=*/true))
      return Start(*queue, *std::move(arrived));
  }
}

void PlainHost::Start(Queue& queue, Arrivals::Batch arrived) {
  const bool training = &queue == &training_;
  const Sequence sequence(queue.next);
  const int64_t samples = queue.samples.extract(sequence.value()).mapped();
  feed_->session().Acknowledge(queue.input_kind, generation_, sequence);
  feed_->session().Acknowledge(queue.labels_kind, generation_, sequence);
  if (training) {
    meter_.BeginAction();
  } else {
    evaluation_samples_ = samples;
  }
  lanes_.Compute(
      {training ? SpanKind::kMicroBatch : SpanKind::kEvaluation, sequence},
      [this, training, sequence, samples,
       arrived = std::move(arrived)]() mutable -> absl::StatusOr<LossResult> {
        if (training) {
          return TrainMicroBatch(*engine_, batching_.Locate(sequence), std::move(arrived.input),
                                 std::move(arrived.labels), &environment_.loop->clock());
        }
        RUNNEL_ASSIGN_OR_RETURN(
            StageCompute::Output output,
            engine_->Evaluate(samples, std::move(arrived.input), std::move(arrived.labels)));
        return LossResult{output.loss_sum, output.correct, std::move(output.counts)};
      },
      [this, training](const absl::StatusOr<LossResult>& result, const TaskTime& time) {
        Finished(result, training, time);
      });
}

void PlainHost::Finished(const absl::StatusOr<LossResult>& result, bool training,
                         const TaskTime& time) {
  if (!result.ok()) {
    Fail(result.status());
    return;
  }
  // An evaluation may find an infinite loss: that is news, not the end.
  if (training && !std::isfinite(result->loss_sum)) {
    Fail(absl::InvalidArgumentError(
        "the loss is not finite: training diverged; try a smaller --lr"));
    return;
  }
  if (!training) {
    FinishedEvaluation(*result);
    return;
  }
  meter_.EndAction(SpanKind::kMicroBatch, time,
                   {result->forward_ended_ns, engine_->TakeUpdateBegin()});
  Telemetry& counts = meter_.counts();
  counts.loss_sum += result->loss_sum;
  counts.correct += result->correct;
  counts.loss_samples += batching_.Locate(Sequence(training_.next)).samples;
  counts.forwards = counts.backwards = ++training_.next;
  if (meter_.EndBackward(time.end_ns)) events_.on_first_backward();
  if (training_.next == training_.limit) {
    meter_.Pause();
    events_.on_barrier(Sequence(training_.limit));
  }
  Advance();
}

void PlainHost::FinishedEvaluation(const LossResult& result) {
  evaluation_.loss_sum += result.loss_sum;
  evaluation_.correct += result.correct;
  evaluation_.samples += evaluation_samples_;
  evaluation_.counts.Add(result.counts);
  if (++evaluating_.next == evaluating_.limit) events_.on_evaluation(evaluation_);
  Advance();
}

Telemetry PlainHost::telemetry() const {
  Telemetry telemetry = meter_.counts();
  telemetry.memory_bytes = engine_->memory_bytes();
  telemetry.stash_bytes = engine_->stash_bytes();
  telemetry.queue_length = training_.arrived.inputs();
  engine_->FillRange(telemetry);
  meter_.Fill(telemetry);
  return telemetry;
}

}  // namespace runnel
