#include "worker/host/pipeline_host.h"

#include <utility>
#include <variant>

#include "proto/base/status_macros.h"
#include "worker/frame_limits.h"

namespace runnel {
namespace {

StageRuntimeOptions RuntimeOptions(const PrepareStage& stage, const Batching& batching) {
  return {.plan = stage.plan,
          .stage = stage.stage,
          .batching = batching,
          .first_sequence = stage.first_sequence,
          .eval_batch_size = stage.training.eval_batch_size,
          .eval_samples = stage.eval_samples,
          .frozen_front = stage.model.frozen_front(),
          .clips = stage.training.clip_norm > 0};
}

}  // namespace

PipelineHost::PipelineHost(const PrepareStage& stage, const StageEnvironment& environment,
                           const Batching& batching, std::unique_ptr<StageEngine> engine,
                           std::unique_ptr<LinkCodecs> codecs, StageEvents events)
    : environment_(environment),
      generation_(stage.plan.generation),
      micro_batch_sizes_(ShapeSizes(batching, stage.training.eval_batch_size, stage.eval_samples)),
      runtime_(RuntimeOptions(stage, batching)),
      engine_(std::move(engine)),
      codecs_(std::move(codecs)),
      events_(std::move(events)),
      meter_(&environment.loop->clock(), generation_,
             {engine_->is_emulated() ? nullptr : environment.energy,
              engine_->ModelJoules(batching.Locate(stage.first_sequence).samples),
              stage.first_sequence}),
      links_(stage, environment),
      replication_(std::make_unique<StageReplication>(StageReplicationOptions{
          stage.plan, stage.stage, stage.model, stage.training.batch_size, engine_->numbers(),
          environment.loop, environment.pool, environment.replicas,
          [this](const Replicated& replicated) { events_.on_replicated(replicated); },
          stage.training.dataset_samples})),
      lanes_(environment.loop, environment.spans, environment.make_lane,
             !environment.shares_processor) {}

void PipelineHost::Detach() {
  lanes_.Detach();
  replication_.reset();
  links_.Close();
}

void PipelineHost::SetLimits() {
  StageFrameSizes sizes;
  sizes.first_stage = runtime_.first_stage();
  sizes.clips = runtime_.clips();
  if (runtime_.has_loss()) sizes.labels_per_sample = LabelsPerSample(engine_->output_shape(1));
  const bool has_neighbour = has_upstream() || has_downstream();
  sizes.replica_piece = has_neighbour ? kReplicaHeadBytes + kReplicaPieceBytes : 0;
  for (int64_t samples : micro_batch_sizes_) {
    const Shape input = engine_->input_shape(samples);
    sizes.by_samples.push_back(
        {.samples = samples,
         .input = sizes.first_stage ? input.elements() * 4 : codecs_->EvaluationBytes(input),
         .activation = codecs_->MaxReceivedBytes(Direction::kForward, input),
         .gradient =
             codecs_->MaxReceivedBytes(Direction::kBackward, engine_->output_shape(samples)),
         .raw_activation = codecs_->TensorBytes(Direction::kForward, input),
         .raw_gradient =
             codecs_->TensorBytes(Direction::kBackward, engine_->output_shape(samples))});
  }
  environment_.limits->Set(AllowedPayloads(sizes));
}

LinkShell& PipelineHost::OpenLink(Peer peer) {
  const bool replicates = peer != Peer::kFeed;
  const auto side =
      peer == Peer::kUpstream ? StageReplication::kUpstream : StageReplication::kDownstream;
  const bool awaits = peer == Peer::kDownstream && runtime_.forward_only();
  std::function<void()> on_received;
  if (replicates || awaits) {
    on_received = [this, replicates, awaits, side] {
      if (replicates) replication_->Pump(side);
      if (awaits) ReportWaiting();
    };
  }
  LinkShell& link = links_.Open(
      peer, std::move(on_received), [this, peer](Frame frame) { Deliver(peer, std::move(frame)); },
      [this](const absl::Status& status) { Fail(status); });
  if (peer == Peer::kUpstream && !runtime_.sends_gradients())
    link.session().AcknowledgeAtOnce(FrameKind::kActivation);
  if (replicates) replication_->SetLink(side, &link);
  return link;
}

void PipelineHost::Start() {
  SetLimits();
  if (has_upstream()) OpenLink(Peer::kUpstream);
  if (needs_feed()) OpenLink(Peer::kFeed);
  if (has_downstream()) OpenLink(Peer::kDownstream).Start();
  CheckReady();
}

void PipelineHost::Attach(const std::string& role, std::shared_ptr<LoopConnection> connection) {
  if (links_.Attach(role, std::move(connection))) CheckReady();
}

void PipelineHost::CheckReady() {
  if (links_.connected() && !std::exchange(ready_, true)) events_.on_ready();
}

void PipelineHost::Fail(const absl::Status& status) {
  if (std::exchange(failed_, true)) return;
  events_.on_failed(status);
}

absl::Status PipelineHost::RunUntil(Sequence limit) {
  meter_.Resume();
  Pump(runtime_.RunUntil(limit));
  return absl::OkStatus();
}

absl::Status PipelineHost::Evaluate(Sequence first, int64_t micro_batches) {
  Pump(runtime_.Evaluate(first, micro_batches));
  return absl::OkStatus();
}

absl::Status PipelineHost::DryRun(Sequence first, int64_t micro_batches, const CodedWays& coded) {
  comparison_ = Comparison();
  Pump(runtime_.DryRun(first, micro_batches, coded));
  return absl::OkStatus();
}

void PipelineHost::Deliver(Peer from, Frame frame) {
  const FrameHeader& header = frame.header;
  if (header.kind == FrameKind::kReplica) {
    if (from == Peer::kFeed) return Fail(absl::InvalidArgumentError("replica: of no stage"));
    const auto side =
        from == Peer::kUpstream ? StageReplication::kUpstream : StageReplication::kDownstream;
    if (absl::Status kept = replication_->Arrived(side, frame); !kept.ok()) return Fail(kept);
    return links_.To(from)->session().Acknowledge(header.kind, generation_, header.sequence);
  }
  CountArrival(from, frame);
  Pump(runtime_.Arrived(header.kind, header.sequence, header.samples, std::move(frame.payload)));
}

void PipelineHost::CountArrival(Peer from, const Frame& frame) {
  const bool is_activation = frame.header.kind == FrameKind::kActivation;
  if (!is_activation && frame.header.kind != FrameKind::kGradient) return;
  meter_.CountArrival(is_activation ? Direction::kForward : Direction::kBackward,
                      kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size()),
                      links_.To(from)->received_bytes_per_second());
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

absl::Status PipelineHost::Replicate(const runnel::Replicate& request,
                                     std::shared_ptr<const SummedState> copy, int64_t stall_ns) {
  return replication_->Begin(request, std::move(copy), stall_ns);
}

Telemetry PipelineHost::telemetry() const {
  Telemetry telemetry = meter_.counts();
  telemetry.forwards = runtime_.forwards();
  telemetry.backwards = runtime_.backwards();
  telemetry.loss_sum = runtime_.loss().loss_sum;
  telemetry.correct = runtime_.loss().correct;
  telemetry.loss_samples = runtime_.loss().samples;
  telemetry.memory_bytes = engine_->memory_bytes();
  telemetry.stash_bytes = engine_->stash_bytes();
  telemetry.queue_length = runtime_.waiting();
  engine_->FillRange(telemetry);
  links_.Fill(telemetry);
  meter_.Fill(telemetry);
  return telemetry;
}

}  // namespace runnel
