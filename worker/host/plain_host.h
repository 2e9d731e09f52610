#pragma once

// The shell around the plain loop: samples and labels come in on the feed, one lane trains on them
// in order.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "worker/host/stage_host.h"
#include "worker/host/stage_lanes.h"
#include "worker/host/stage_meter.h"
#include "worker/stage/arrivals.h"
#include "worker/stage/plain_loop.h"
#include "worker/stage/stage_engine.h"

namespace runnel {

class PlainHost final : public StageHost {
 public:
  // The engine has all layers and holds their state already.
  PlainHost(const PrepareStage& stage, const StageEnvironment& environment,
            const Batching& batching, std::unique_ptr<StageEngine> engine, StageEvents events);

  void Start() override;
  void Attach(const std::string& role, std::shared_ptr<LoopConnection> connection) override;
  void ChangeTraining(const TrainingChange& change) override { engine_->ChangeTraining(change); }
  absl::Status RunUntil(Sequence limit) override;
  absl::Status Evaluate(Sequence first, int64_t micro_batches) override;
  absl::Status DryRun(Sequence, int64_t, const CodedWays&) override {
    return absl::FailedPreconditionError("the plain loop has no codecs to measure");
  }
  absl::StatusOr<ModelState> TakeSnapshot() override { return engine_->ExportState(); }
  absl::Status Replicate(const runnel::Replicate&, std::shared_ptr<const SummedState>,
                         int64_t) override {
    return absl::FailedPreconditionError("the plain loop has no neighbours to replicate its state");
  }
  Telemetry telemetry() const override;
  std::string numerics_class() const override { return engine_->numerics_class(); }
  int64_t evaluated() const override { return evaluating_.next; }
  bool computing() const override { return lanes_.computing(); }
  void Detach() override;

 private:
  // Samples and labels of one kind of micro-batch, waiting for each other.
  struct Queue {
    FrameKind input_kind;
    FrameKind labels_kind;
    int64_t next = 0;
    int64_t limit = 0;
    Arrivals arrived;
    std::map<int64_t, int64_t> samples;
  };

  void Deliver(Frame frame);
  void Advance();
  void Start(Queue& queue, Arrivals::Batch arrived);
  void Finished(const absl::StatusOr<LossResult>& result, bool training, const TaskTime& time);
  void FinishedEvaluation(const LossResult& result);
  void Fail(const absl::Status& status);

  StageEnvironment environment_;
  std::string greeting_;
  Batching batching_;
  Generation generation_;
  std::unique_ptr<StageEngine> engine_;
  StageEvents events_;
  StageMeter meter_;
  Queue training_{FrameKind::kInput, FrameKind::kLabels, 0, 0, {}, {}};
  Queue evaluating_{FrameKind::kEvalInput, FrameKind::kEvalLabels, 0, 0, {}, {}};
  EvaluationDone evaluation_;
  int64_t evaluation_samples_ = 0;  // samples of the micro-batch under evaluation
  bool ready_ = false;
  bool failed_ = false;
  std::unique_ptr<LinkShell> feed_;
  StageLanes lanes_;  // last: joined before what its task uses goes
};

}  // namespace runnel
