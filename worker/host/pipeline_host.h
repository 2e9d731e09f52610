#pragma once

// The shell around StageRuntime: a compute lane, a codec lane and the links to the neighbours and
// to central. Where the device has less than a processor for it, tensors are coded on the compute
// lane, between its tasks: nothing runs beside it there anyway, and what was just decoded, or is
// just to be encoded, lies in that thread's caches.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/host/stage_host.h"
#include "worker/host/stage_lanes.h"
#include "worker/host/stage_links.h"
#include "worker/host/stage_meter.h"
#include "worker/link_codecs.h"
#include "worker/replication/stage_replication.h"
#include "worker/stage/dry_run/gradient_comparison.h"
#include "worker/stage/stage_engine.h"
#include "worker/stage/stage_runtime.h"

namespace runnel {

class PipelineHost final : public StageHost {
 public:
  // The engine holds the stage's state already.
  PipelineHost(const PrepareStage& stage, const StageEnvironment& environment,
               const Batching& batching, std::unique_ptr<StageEngine> engine,
               std::unique_ptr<LinkCodecs> codecs, StageEvents events);

  void Start() override;
  void Attach(const std::string& role, std::shared_ptr<LoopConnection> connection) override;
  void ChangeTraining(const TrainingChange& change) override {
    engine_->ChangeTraining(change);
    codecs_->ChangeTraining(change);
  }
  absl::Status RunUntil(Sequence limit) override;
  absl::Status Evaluate(Sequence first, int64_t micro_batches) override;
  absl::Status DryRun(Sequence first, int64_t micro_batches, const CodedWays& coded) override;
  absl::StatusOr<ModelState> TakeSnapshot() override;
  absl::Status Replicate(const runnel::Replicate& request, std::shared_ptr<const SummedState> copy,
                         int64_t stall_ns) override;
  Telemetry telemetry() const override;
  std::string numerics_class() const override { return engine_->numerics_class(); }
  int64_t evaluated() const override { return runtime_.evaluated(); }
  bool computing() const override { return lanes_.computing(); }
  void Detach() override;

 private:
  bool has_upstream() const { return !runtime_.first_stage(); }
  bool has_downstream() const { return !runtime_.has_loss(); }
  bool needs_feed() const { return runtime_.first_stage() || runtime_.has_loss(); }
  LinkShell& OpenLink(Peer peer);
  void SetLimits();
  void CheckReady();
  void Fail(const absl::Status& status);

  void Deliver(Peer from, Frame frame);
  // Carries out the runtime's effects, or reports that it failed.
  void Pump(const absl::Status& status);
  void Carry(SendEffect effect);
  void Carry(AcknowledgeEffect effect);
  void Carry(ForwardEffect effect);
  void Carry(InputGradientEffect effect);
  void Carry(WeightGradientEffect effect);
  void Carry(StepEffect effect);
  void Carry(EvaluateEffect effect);
  void Carry(EncodeEffect effect);
  void Carry(DecodeEffect effect);
  void Carry(BarrierEffect effect);
  void Carry(EvaluationDoneEffect effect);
  void Carry(BeginDryRunEffect);
  void Carry(CompareGradientEffect effect);
  void Carry(EndDryRunEffect);
  void Carry(DryRunDoneEffect effect);

  // Both run where tensors are coded.
  absl::StatusOr<Payload> Encode(const EncodeEffect& effect);
  absl::StatusOr<Payload> Decode(const DecodeEffect& effect);
  // Runs `work` on the compute lane; its result becomes ComputeDone. counts: as busy time.
  void Compute(bool counts, StageLanes::Purpose purpose,
               std::function<absl::StatusOr<StageCompute::Output>()> work);
  // The error of an action that read a tensor from a neighbour; marked, if that is no number.
  absl::Status OfReceived(const absl::Status& status, Direction direction, const MicroBatch& place,
                          const Payload& tensor) const;
  absl::StatusOr<StageCompute::Output> ComputeForward(const ForwardEffect& effect);
  // The forward's output; an error if it is no number, which says where that came from.
  absl::StatusOr<StageCompute::Output> Forward(const ForwardEffect& effect);
  // Carries out an event's effects and records when the first backward ended. `before` is
  // runtime_.backwards() before the event.
  void PumpBackward(int64_t before, int64_t now_ns, const absl::Status& status);
  // Where runtime_.forward_only(): passes on how many activations the next stage has not begun.
  void ReportWaiting();
  void ComputeFinished(absl::StatusOr<StageCompute::Output> output, const TaskTime& time);
  void CountArrival(Peer from, const Frame& frame);

  StageEnvironment environment_;
  const Generation generation_;
  const std::vector<int64_t> micro_batch_sizes_;  // of training and evaluations, in samples
  StageRuntime runtime_;
  std::unique_ptr<StageEngine> engine_;
  std::unique_ptr<LinkCodecs> codecs_;
  StageEvents events_;
  StageMeter meter_;
  bool ready_ = false;
  bool failed_ = false;
  NotFinite loss_from_ = NotFinite::kNothing;  // of a loss that is no finite number
  StageLinks links_;
  std::unique_ptr<StageReplication> replication_;
  // Of the dry run that is under way; compute actions add to it.
  struct Comparison {
    GradientComparison gradients;
    std::vector<float> last;  // gradient
  };
  Comparison comparison_;
  StageLanes lanes_;  // last: joined before what their tasks use goes
};

}  // namespace runnel
