#pragma once

// One stage's part in the pipeline as a state machine (AccEPT 2.1): events in, effects out. No
// thread, no clock, no arithmetic: the shell (host/pipeline_host.h) carries effects out on a compute
// lane and a codec lane and returns completions as events; the simulator runs the same object over
// a virtual network. The order of compute effects is a function of the plan and the grants, never
// of arrivals.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/ids.h"
#include "proto/base/plan/next_action.h"
#include "proto/base/plan/plan.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/training/batching.h"
#include "proto/transport/link/frame.h"
#include "worker/stage/arrivals.h"
#include "worker/stage/dry_run/stage_dry_run.h"
#include "worker/stage/gradient_norm.h"
#include "worker/stage/stage_effects.h"
#include "worker/stage/stage_evaluation.h"

namespace runnel {

struct StageRuntimeOptions {
  Plan plan;
  int stage = 0;
  Batching batching;
  Sequence first_sequence;
  int64_t eval_batch_size = 0;
  int64_t eval_samples = 0;
  int frozen_front = 0;  // of the model
  bool clips = false;    // --clip-norm; the plan drains each step
};

class StageRuntime {
 public:
  explicit StageRuntime(StageRuntimeOptions options);

  // Events. Not OK: the event cannot be (a peer's or our own fault); the stage has failed and emits
  // nothing more. RunUntil: micro-batches below `limit` may run; a barrier. Grows.
  absl::Status RunUntil(Sequence limit);
  absl::Status Evaluate(Sequence first, int64_t micro_batches);
  // The next micro-batches of the training, without a step; `first`: of the frames' own sequences.
  // coded: tensors that pass their codecs.
  absl::Status DryRun(Sequence first, int64_t micro_batches, const CodedWays& coded);
  // A data frame, in order within its kind (LinkSession's delivery).
  absl::Status Arrived(FrameKind kind, Sequence sequence, int64_t samples, Payload payload);
  absl::Status Decoded(Direction direction, Sequence sequence, Payload tensor);
  absl::Status Encoded(Direction direction, Sequence sequence, int64_t samples, Payload payload);
  absl::Status ComputeDone(ComputeResult result);
  // Where forward_only(): the next stage has not begun the forward of the last `activations` that
  // were sent.
  absl::Status Waiting(int64_t activations);

  // The effects to carry out now, in order. Empties the list.
  std::vector<Effect> TakeEffects();

  bool first_stage() const { return options_.stage == 0; }
  bool has_loss() const {
    return options_.stage + 1 == static_cast<int>(options_.plan.stages.size());
  }
  // No gradient comes: all layers are frozen, and so are those before. A micro-batch is in flight
  // until the next stage begins its forward.
  bool forward_only() const { return plan().last_layer < options_.frozen_front; }
  // A gradient leaves for the stage before.
  bool sends_gradients() const { return plan().first_layer > options_.frozen_front; }
  bool clips() const { return options_.clips; }
  int64_t forwards() const { return done_.forwards; }
  // Micro-batches that are no longer in flight: both gradients are done, or none is needed and the
  // next stage has begun.
  int64_t backwards() const { return done_.weight_gradients; }
  // Activations and gradients that have come and are not begun.
  int64_t waiting() const { return arrived_.inputs() + static_cast<int64_t>(gradients_.size()); }
  // Optimizer steps that the newest weights have seen.
  int64_t version() const { return version_; }
  bool at_barrier() const { return barrier_reported_; }
  const LossCounters& loss() const { return loss_; }
  // Grows with each micro-batch that is evaluated or runs dry.
  int64_t evaluated() const { return evaluation_.evaluated() + dry_run_.passes(); }
  bool runs_dry() const { return dry_run_.under_way(); }

 private:
  StageDryRun::Ways DryWays() const;
  const StagePlan& plan() const { return options_.plan.stages[options_.stage]; }
  // The stage before gets no gradient; the acknowledgement of an activation, sent when its forward
  // begins, ends its micro-batch there.
  bool acknowledges_forwards() const { return !first_stage() && !sends_gradients(); }
  // Whether a boundary tensor that arrives, or that leaves, goes through the codec lane.
  bool Decodes(Direction direction) const;
  bool Encodes(Direction direction) const;
  int64_t Boundary() const;
  absl::Status Fail(std::string what);
  absl::Status CheckArrival(FrameKind kind, Sequence sequence, int64_t samples) const;
  void Accept(Direction direction, MicroBatch place, Payload payload);
  void Advance();
  void StartForward();
  void StartInputGradient();
  void StartWeightGradient();
  void AdvanceEvaluation();
  void FinishForward(ComputeResult result);
  void FinishInputGradient(ComputeResult result);
  void FinishWeightGradient(ComputeResult result);
  void Emit(Direction direction, const MicroBatch& place, Payload tensor);
  void Send(Direction direction, Sequence sequence, int64_t samples, Payload payload);

  StageRuntimeOptions options_;
  std::vector<Effect> effects_;
  bool failed_ = false;

  int64_t limit_ = 0;
  StageProgress done_;
  int64_t sent_ = 0;  // sequences below it were sent to the next stage
  int64_t version_ = 0;
  bool barrier_reported_ = true;
  int64_t codec_outstanding_ = 0;
  enum class Running : uint8_t {
    kNothing,
    kForward,
    kInputGradient,
    kWeightGradient,
    kStep,
    kEvaluate
  };
  Running running_ = Running::kNothing;

  Arrivals arrived_;                      // and decoded
  std::map<int64_t, Payload> gradients_;  // by sequence
  LossCounters loss_;
  StageEvaluation evaluation_;
  StageDryRun dry_run_;
  GradientNorm norm_;
};

}  // namespace runnel
