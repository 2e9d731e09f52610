#include "worker/plain_host.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "worker/frame_limits.h"
#include "worker/out_of_memory.h"
#include "worker/peak_memory.h"

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
      use_(environment.energy, engine_->ModelJoules(batching_.Locate(stage.first_sequence).samples),
           stage.first_sequence),
      alive_(std::make_shared<bool>(true)),
      lane_(MakeLane(environment.make_lane, LaneKind::kCompute)) {
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

PlainHost::~PlainHost() {
  if (alive_ != nullptr) *alive_ = false;
}

void PlainHost::Detach() {
  *std::exchange(alive_, nullptr) = false;
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
  idle_since_ns_ = environment_.loop->clock().NowNanos();
  use_.Resume(environment_.loop->clock().NowNanos());
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
  (header.kind == queue.labels_kind ? queue.labels : queue.inputs)[sequence] =
      std::move(frame.payload);
  Advance();
}

void PlainHost::Advance() {
  if (running_ || failed_) return;
  for (Queue* queue : {&training_, &evaluating_}) {
    const bool here = queue->next < queue->limit && queue->inputs.contains(queue->next) &&
                      queue->labels.contains(queue->next);
    if (here) {
      Start(*queue);
      return;
    }
  }
}

void PlainHost::Start(Queue& queue) {
  const bool training = &queue == &training_;
  const Sequence sequence(queue.next);
  const auto take = [&sequence](std::map<int64_t, Payload>& from) {
    return from.extract(sequence.value()).mapped();
  };
  Payload input = take(queue.inputs);
  Payload labels = take(queue.labels);
  const int64_t samples = queue.samples.extract(sequence.value()).mapped();
  feed_->session().Acknowledge(queue.input_kind, generation_, sequence);
  feed_->session().Acknowledge(queue.labels_kind, generation_, sequence);
  running_ = true;
  if (!training) evaluation_samples_ = samples;
  if (training && idle_since_ns_ != 0) {
    telemetry_.wait_ns += environment_.loop->clock().NowNanos() - std::exchange(idle_since_ns_, 0);
  }
  lane_->Post([this, training, sequence, samples, input = std::move(input),
               labels = std::move(labels), alive = alive_]() mutable {
    const Clock& clock = environment_.loop->clock();
    TaskTime time;
    time.begin_ns = clock.NowNanos();
    const int64_t processor_begin_ns = ThreadProcessorNs();
    const absl::StatusOr<LossResult> result =
        WithinMemory("it computed", [&]() -> absl::StatusOr<LossResult> {
          if (training) {
            return TrainMicroBatch(*engine_, batching_.Locate(sequence), std::move(input),
                                   std::move(labels));
          }
          RUNNEL_ASSIGN_OR_RETURN(const StageCompute::Output output,
                                  engine_->Evaluate(samples, std::move(input), std::move(labels)));
          return LossResult{output.loss_sum, output.correct};
        });
    time.processor_ns = ThreadProcessorNs() - processor_begin_ns;
    time.end_ns = clock.NowNanos();
    environment_.loop->Post([this, alive, result, training, time] {
      if (*alive) Finished(result, training, time);
    });
  });
}

void PlainHost::Finished(const absl::StatusOr<LossResult>& result, bool training,
                         const TaskTime& time) {
  running_ = false;
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
  telemetry_.busy_ns += time.end_ns - time.begin_ns;
  telemetry_.busy_processor_ns += time.processor_ns;
  telemetry_.loss_sum += result->loss_sum;
  telemetry_.correct += result->correct;
  telemetry_.loss_samples += batching_.Locate(Sequence(training_.next)).samples;
  idle_since_ns_ = time.end_ns;
  telemetry_.forwards = telemetry_.backwards = ++training_.next;
  const bool is_first = std::exchange(telemetry_.last_backward_ns, time.end_ns) == 0;
  if (is_first) events_.on_first_backward();
  if (training_.next == training_.limit) {
    idle_since_ns_ = 0;
    use_.Pause(environment_.loop->clock().NowNanos());
    events_.on_barrier(Sequence(training_.limit));
  }
  Advance();
}

void PlainHost::FinishedEvaluation(const LossResult& result) {
  evaluation_.loss_sum += result.loss_sum;
  evaluation_.correct += result.correct;
  evaluation_.samples += evaluation_samples_;
  if (++evaluating_.next == evaluating_.limit) events_.on_evaluation(evaluation_);
  Advance();
}

Telemetry PlainHost::telemetry() const {
  Telemetry telemetry = telemetry_;
  telemetry.generation = generation_;
  telemetry.peak_rss_bytes = PeakResidentBytes();
  telemetry.memory_bytes = engine_->memory_bytes();
  use_.Fill(environment_.loop->clock().NowNanos(), telemetry);
  return telemetry;
}

}  // namespace runnel
