#include "worker/pipeline_host.h"

#include <cmath>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "worker/frame_limits.h"
#include "worker/not_finite.h"
#include "worker/out_of_memory.h"
#include "worker/peak_memory.h"

namespace runnel {
namespace {

// Whether a neighbour lives, central finds out long before, and tells with another plan. A link
// that goes by way of central must outlast a central that is stopped for a while.
constexpr int64_t kNeighbourPatienceNs = int64_t{120} * 1000 * 1000 * 1000;

StageRuntimeOptions RuntimeOptions(const PrepareStage& stage, const Batching& batching) {
  return {.plan = stage.plan,
          .stage = stage.stage,
          .batching = batching,
          .first_sequence = stage.first_sequence,
          .eval_batch_size = stage.training.eval_batch_size,
          .eval_samples = stage.eval_samples,
          .frozen_front = stage.model.frozen_front()};
}

}  // namespace

PipelineHost::PipelineHost(const PrepareStage& stage, const StageEnvironment& environment,
                           const Batching& batching, std::unique_ptr<StageEngine> engine,
                           std::unique_ptr<LinkCodecs> codecs, StageEvents events)
    : environment_(environment),
      shaping_(stage.shaping),
      greeting_(stage.link_greeting),
      downstream_target_(stage.downstream),
      upstream_peer_(stage.upstream_peer),
      training_(stage.training),
      eval_samples_(stage.eval_samples),
      batching_(batching),
      generation_(stage.plan.generation),
      runtime_(RuntimeOptions(stage, batching)),
      engine_(std::move(engine)),
      codecs_(std::move(codecs)),
      events_(std::move(events)),
      use_(environment.energy, engine_->ModelJoules(batching_.Locate(stage.first_sequence).samples),
           stage.first_sequence),
      alive_(std::make_shared<bool>(true)),
      replication_(std::make_unique<StageReplication>(StageReplicationOptions{
          stage.plan, stage.stage, stage.model, stage.training.batch_size, engine_->numbers(),
          environment.loop, environment.pool, environment.replicas,
          [this](const Replicated& replicated) { events_.on_replicated(replicated); }})),
      compute_lane_(MakeLane(environment.make_lane, LaneKind::kCompute)),
      codec_lane_(environment.shares_processor
                      ? nullptr
                      : MakeLane(environment.make_lane, LaneKind::kCodec)) {}

PipelineHost::~PipelineHost() {
  if (alive_ != nullptr) *alive_ = false;
}

void PipelineHost::Detach() {
  *std::exchange(alive_, nullptr) = false;
  replication_.reset();
  upstream_.reset();
  downstream_.reset();
  feed_.reset();
}

void PipelineHost::SetLimits() {
  StageFrameSizes sizes;
  sizes.first_stage = runtime_.first_stage();
  sizes.has_loss = runtime_.has_loss();
  const bool receives = replication_->ReceivesFrom(ReplicaSource::kUpstream) ||
                        replication_->ReceivesFrom(ReplicaSource::kDownstream);
  sizes.replica_piece = receives ? kReplicaHeadBytes + kReplicaPieceBytes : 0;
  for (int64_t samples : ShapeSizes(batching_, training_.eval_batch_size, eval_samples_)) {
    const Shape input = engine_->input_shape(samples);
    sizes.by_samples.push_back(
        {.samples = samples,
         .input = sizes.first_stage ? input.elements() * 4 : codecs_->EvaluationBytes(input),
         .activation = codecs_->MaxReceivedBytes(Direction::kForward, input),
         .gradient =
             codecs_->MaxReceivedBytes(Direction::kBackward, engine_->output_shape(samples))});
  }
  environment_.limits->Set(AllowedPayloads(sizes));
}

std::unique_ptr<LinkShell> PipelineHost::MakeLink(Peer peer, const LinkTarget& target) {
  const bool replicates = (peer == Peer::kDownstream && replication_->sends_down()) ||
                          (peer == Peer::kUpstream && replication_->sends_up());
  LinkShell::Options options;
  options.transport = environment_.transport;
  options.target = target;
  options.peer = peer == Peer::kFeed ? CentralSubject().ToString() : upstream_peer_;
  options.role = "link";
  options.shaping = shaping_;
  options.probes = peer != Peer::kFeed;
  options.redial.lost_ns = kNeighbourPatienceNs;
  const bool awaits = peer == Peer::kDownstream && runtime_.forward_only();
  if (replicates || awaits) {
    options.on_received = [this, replicates, awaits] {
      if (replicates) replication_->Pump();
      if (awaits) ReportWaiting();
    };
  }
  auto link = std::make_unique<LinkShell>(
      environment_.loop, environment_.limits, std::move(options),
      [this, peer](Frame frame) { Deliver(peer, std::move(frame)); },
      [this](const absl::Status& status) { Fail(status); });
  link->session().StartGeneration(generation_);
  if (peer == Peer::kUpstream && !runtime_.sends_gradients())
    link->session().AcknowledgeAtOnce(FrameKind::kActivation);
  if (replicates) replication_->SetLink(link.get());
  return link;
}

void PipelineHost::Start() {
  SetLimits();
  if (has_upstream()) upstream_ = MakeLink(Peer::kUpstream, {});
  if (needs_feed()) feed_ = MakeLink(Peer::kFeed, {});
  if (has_downstream()) {
    downstream_ = MakeLink(Peer::kDownstream, downstream_target_);
    downstream_->Start();
  }
  CheckReady();
}

void PipelineHost::Attach(const std::string& role, std::shared_ptr<LoopConnection> connection) {
  LinkShell* link = role == "feed" ? feed_.get() : role == "link" ? upstream_.get() : nullptr;
  if (link == nullptr)
    return connection->Refuse(
        absl::StrCat("has no link for a ", role == "feed" ? "feed" : "stage"));
  // The greeting tells the dialling end that it has reached this stage, not only a port.
  connection->connection()->Send(MakeHello({greeting_, role})).IgnoreError();
  link->Attach(std::move(connection));
  CheckReady();
}

void PipelineHost::CheckReady() {
  if (ready_) return;
  if (has_upstream() && !upstream_->connected()) return;
  if (needs_feed() && !feed_->connected()) return;
  ready_ = true;
  events_.on_ready();
}

void PipelineHost::Fail(const absl::Status& status) {
  if (std::exchange(failed_, true)) return;
  events_.on_failed(status);
}

LinkShell* PipelineHost::LinkTo(Peer peer) {
  return peer == Peer::kUpstream     ? upstream_.get()
         : peer == Peer::kDownstream ? downstream_.get()
                                     : feed_.get();
}

absl::Status PipelineHost::RunUntil(Sequence limit) {
  idle_since_ns_ = environment_.loop->clock().NowNanos();
  use_.Resume(environment_.loop->clock().NowNanos());
  Pump(runtime_.RunUntil(limit));
  return absl::OkStatus();
}

absl::Status PipelineHost::Evaluate(Sequence first, int64_t micro_batches) {
  Pump(runtime_.Evaluate(first, micro_batches));
  return absl::OkStatus();
}

void PipelineHost::Deliver(Peer from, Frame frame) {
  const FrameHeader& header = frame.header;
  if (header.kind == FrameKind::kReplica) {
    const ReplicaSource source = from == Peer::kUpstream     ? ReplicaSource::kUpstream
                                 : from == Peer::kDownstream ? ReplicaSource::kDownstream
                                                             : ReplicaSource::kOwn;
    if (absl::Status kept = replication_->Arrived(source, frame); !kept.ok()) return Fail(kept);
    return LinkTo(from)->session().Acknowledge(header.kind, generation_, header.sequence);
  }
  Pump(runtime_.Arrived(header.kind, header.sequence, header.samples, std::move(frame.payload)));
}

void PipelineHost::Pump(const absl::Status& status) {
  if (failed_) return;
  if (!status.ok()) {
    Fail(status);
    return;
  }
  for (Effect& effect : runtime_.TakeEffects()) {
    std::visit([this](auto& one) { Carry(std::move(one)); }, effect);
  }
}

void PipelineHost::Carry(SendEffect effect) {
  Frame frame;
  frame.header.kind = effect.kind;
  frame.header.generation = generation_;
  frame.header.sequence = effect.sequence;
  frame.header.samples = static_cast<uint32_t>(effect.samples);
  frame.payload = std::move(effect.payload);
  const int64_t bytes = kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size());
  if (effect.kind == FrameKind::kGradient) {
    ++telemetry_.frames_up;
    telemetry_.bytes_up += bytes;
    telemetry_.raw_bytes_up += engine_->input_shape(effect.samples).elements() * 4;
  } else if (effect.kind == FrameKind::kActivation || !engine_->trains()) {
    ++telemetry_.frames_down;
    telemetry_.bytes_down += bytes;
    telemetry_.raw_bytes_down += engine_->output_shape(effect.samples).elements() * 4;
  }
  LinkTo(effect.peer)->session().Send(std::move(frame));
}

void PipelineHost::Carry(AcknowledgeEffect effect) {
  LinkTo(effect.peer)->session().Acknowledge(effect.kind, generation_, effect.sequence);
}

void PipelineHost::Compute(bool counts,
                           std::function<absl::StatusOr<StageCompute::Output>()> work) {
  const int64_t now = environment_.loop->clock().NowNanos();
  if (counts && idle_since_ns_ != 0) telemetry_.wait_ns += now - std::exchange(idle_since_ns_, 0);
  computing_ = true;
  compute_lane_->Post([this, counts, work = std::move(work), alive = alive_] {
    const Clock& clock = environment_.loop->clock();
    TaskTime time;
    time.begin_ns = clock.NowNanos();
    const int64_t processor_begin_ns = ThreadProcessorNs();
    absl::StatusOr<StageCompute::Output> output = WithinMemory("it computed", work);
    time.processor_ns = ThreadProcessorNs() - processor_begin_ns;
    time.end_ns = clock.NowNanos();
    environment_.loop->Post([this, alive, output = std::move(output), counts, time]() mutable {
      if (*alive) ComputeFinished(std::move(output), counts, time);
    });
  });
}

void PipelineHost::ComputeFinished(absl::StatusOr<StageCompute::Output> output, bool counts,
                                   const TaskTime& time) {
  computing_ = false;
  if (!output.ok()) {
    Fail(output.status());
    return;
  }
  if (counts) {
    telemetry_.busy_ns += time.end_ns - time.begin_ns;
    telemetry_.busy_processor_ns += time.processor_ns;
    idle_since_ns_ = time.end_ns;
  }
  const int64_t backwards = runtime_.backwards();
  const absl::Status status =
      runtime_.ComputeDone({std::move(output->tensor), output->loss_sum, output->correct});
  PumpBackward(backwards, time.end_ns, status);
}

void PipelineHost::PumpBackward(int64_t before, int64_t now_ns, const absl::Status& status) {
  const bool is_backward = runtime_.backwards() != before;
  const bool is_first = is_backward && telemetry_.last_backward_ns == 0;
  if (is_backward) telemetry_.last_backward_ns = now_ns;
  Pump(loss_from_ == NotFinite::kNothing ? status : MarkNotFinite(status, loss_from_));
  if (is_first) events_.on_first_backward();
}

void PipelineHost::ReportWaiting() {
  const int64_t backwards = runtime_.backwards();
  const absl::Status status =
      runtime_.Waiting(downstream_->session().unacknowledged(FrameKind::kActivation));
  PumpBackward(backwards, environment_.loop->clock().NowNanos(), status);
}

void PipelineHost::Carry(ForwardEffect effect) {
  Compute(true, [this, effect = std::move(effect)] { return Forward(effect); });
}

// An infinite loss becomes the runtime's error, which knows the step.
absl::StatusOr<StageCompute::Output> PipelineHost::Forward(const ForwardEffect& effect) {
  RUNNEL_ASSIGN_OR_RETURN(StageCompute::Output output,
                          engine_->Forward(effect.place, effect.input, effect.labels));
  const DType boundary = engine_->numbers().boundary(Direction::kForward);
  const bool has_number = AllFinite(boundary, output.tensor.bytes());
  if (has_number && std::isfinite(output.loss_sum)) return output;
  const DType entering = runtime_.first_stage() ? DType::kFloat32 : boundary;
  loss_from_ = AllFinite(entering, effect.input.bytes()) ? NotFinite::kOwn : NotFinite::kUpstream;
  if (has_number) return output;
  return MarkNotFinite(absl::InvalidArgumentError(absl::StrCat(
                           "an activation of micro-batch ", effect.place.sequence.value(),
                           " is not finite: training diverged; try a smaller --lr")),
                       loss_from_);
}

void PipelineHost::Carry(InputGradientEffect effect) {
  Compute(true, [this, effect = std::move(effect)] {
    return engine_->InputGradient(effect.place, effect.output_gradient);
  });
}

void PipelineHost::Carry(WeightGradientEffect effect) {
  Compute(true, [this, effect = std::move(effect)]() -> absl::StatusOr<StageCompute::Output> {
    RUNNEL_RETURN_IF_ERROR(engine_->WeightGradient(effect.place, effect.step));
    return StageCompute::Output();
  });
}

void PipelineHost::Carry(EvaluateEffect effect) {
  Compute(
      !engine_->trains(),
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
  codec_lane().Post([this, effect = std::move(effect), alive = alive_] {
    const int64_t begin_ns = environment_.loop->clock().NowNanos();
    const MicroBatch& place = effect.place;
    const Shape shape = effect.direction == Direction::kForward
                            ? engine_->output_shape(place.samples)
                            : engine_->input_shape(place.samples);
    Payload payload;
    absl::Status status = WithinMemory("it encoded a tensor", [&] {
      payload = environment_.pool->Allocate(
          static_cast<size_t>(codecs_->EncodedBytes(effect.direction, place.epoch, shape)));
      return codecs_->Encode(effect.direction, place, shape, effect.tensor.bytes(),
                             payload.mutable_bytes());
    });
    const DType boundary = engine_->numbers().boundary(effect.direction);
    if (!status.ok() && !AllFinite(boundary, effect.tensor.bytes()))
      status = MarkNotFinite(std::move(status), NotFinite::kOwn);
    const int64_t took_ns = environment_.loop->clock().NowNanos() - begin_ns;
    environment_.loop->Post([this, alive, status, direction = effect.direction, place,
                             payload = std::move(payload), took_ns]() mutable {
      if (!*alive) return;
      telemetry_.codec_ns += took_ns;
      Pump(status.ok()
               ? runtime_.Encoded(direction, place.sequence, place.samples, std::move(payload))
               : status);
    });
  });
}

void PipelineHost::Carry(DecodeEffect effect) {
  codec_lane().Post([this, effect = std::move(effect), alive = alive_] {
    const int64_t begin_ns = environment_.loop->clock().NowNanos();
    const MicroBatch& place = effect.place;
    const Shape shape = effect.direction == Direction::kForward
                            ? engine_->input_shape(place.samples)
                            : engine_->output_shape(place.samples);
    Payload tensor;
    const absl::Status status = WithinMemory("it decoded a tensor", [&] {
      tensor = environment_.pool->Allocate(
          static_cast<size_t>(codecs_->TensorBytes(effect.direction, shape)));
      return codecs_->Decode(effect.direction, place, effect.payload.bytes(), shape,
                             tensor.mutable_bytes());
    });
    const int64_t took_ns = environment_.loop->clock().NowNanos() - begin_ns;
    environment_.loop->Post([this, alive, status, direction = effect.direction,
                             sequence = place.sequence, tensor = std::move(tensor),
                             took_ns]() mutable {
      if (!*alive) return;
      telemetry_.codec_ns += took_ns;
      Pump(status.ok() ? runtime_.Decoded(direction, sequence, std::move(tensor)) : status);
    });
  });
}

void PipelineHost::Carry(BarrierEffect effect) {
  idle_since_ns_ = 0;
  use_.Pause(environment_.loop->clock().NowNanos());
  events_.on_barrier(effect.sequence);
}

void PipelineHost::Carry(EvaluationDoneEffect effect) {
  events_.on_evaluation(
      {generation_, effect.first, effect.loss_sum, effect.correct, effect.samples});
}

absl::StatusOr<ModelState> PipelineHost::TakeSnapshot() {
  RUNNEL_ASSIGN_OR_RETURN(ModelState state, engine_->ExportState());
  state.encoders = codecs_->SaveStates();
  return state;
}

absl::Status PipelineHost::Replicate(const ReplicaId& id) {
  const int64_t begin_ns = environment_.loop->clock().NowNanos();
  RUNNEL_ASSIGN_OR_RETURN(ModelState state, TakeSnapshot());
  return replication_->Begin(id, std::move(state),
                             environment_.loop->clock().NowNanos() - begin_ns);
}

Telemetry PipelineHost::telemetry() const {
  Telemetry telemetry = telemetry_;
  telemetry.generation = generation_;
  telemetry.forwards = runtime_.forwards();
  telemetry.backwards = runtime_.backwards();
  telemetry.loss_sum = runtime_.loss().loss_sum;
  telemetry.correct = runtime_.loss().correct;
  telemetry.loss_samples = runtime_.loss().samples;
  for (const auto& link : {&upstream_, &downstream_, &feed_}) {
    if (*link != nullptr)
      telemetry.stale_frames_dropped += (*link)->session().counters().stale_dropped;
  }
  if (upstream_ != nullptr) {
    telemetry.upstream_bytes_per_second = upstream_->received_bytes_per_second();
    telemetry.upstream_round_trip_ns = upstream_->round_trip_ns();
    telemetry.resent_frames_up = upstream_->session().counters().frames_resent;
  }
  if (downstream_ != nullptr) {
    telemetry.downstream_bytes_per_second = downstream_->received_bytes_per_second();
    telemetry.downstream_round_trip_ns = downstream_->round_trip_ns();
    telemetry.resent_frames_down = downstream_->session().counters().frames_resent;
  }
  telemetry.peak_rss_bytes = PeakResidentBytes();
  telemetry.memory_bytes = engine_->memory_bytes();
  use_.Fill(environment_.loop->clock().NowNanos(), telemetry);
  return telemetry;
}

}  // namespace runnel
