#include "worker/pipeline_host.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "worker/frame_limits.h"
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
  if (runtime_.has_loss()) sizes.labels_per_sample = LabelsPerSample(engine_->output_shape(1));
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
