#pragma once

// The real arithmetic of one stage: programs compiled for each micro-batch size, run by a backend
// over the stage's own memory.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"
#include "proto/base/clock.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"
#include "worker/stage/compiled_stage.h"
#include "worker/stage/counts/gate_costs.h"
#include "worker/stage/counts/stage_tally.h"
#include "worker/stage/stage_engine.h"
#include "worker/stage/state/stage_memory.h"
#include "worker/stage/state/stage_state.h"
#include "worker/stage/step_contexts.h"

namespace runnel {

struct StageExecutorOptions {
  ModelSpec model;
  int first_layer = 0;
  int last_layer = 0;
  TrainingSettings training;
  std::vector<TrainingChange> changes;  // decided so far
  int64_t eval_samples = 0;
  const Recipe* recipe = nullptr;  // null: a model in integers is evaluated (int8_inference.h)
  // Forward, InputGradient and WeightGradient of a micro-batch come one after the other: the plain
  // loop, or a stage whose cap is 1 and that defers nothing. Saves the memory of what is kept for
  // several.
  bool one_in_flight = false;
  // Other micro-batches' calls may come between InputGradient and WeightGradient.
  bool defers_weight_gradients = false;
  // Micro-batches in flight at most, and N - i: what the papers have, and how many weight versions
  // TrainingSettings::aggregate_every takes the mean of.
  int64_t cap = 1;
  int64_t usual_cap = 1;
  // Steps between a micro-batch's forward and its own, or kLeadsNowhere (momentum_lead.h).
  int64_t delay = 0;
  // Tells when updates begin, and outlives the executor; null: nothing does.
  const Clock* clock = nullptr;
};

// Not thread-safe: the compute lane owns it; ImportState and ExportState only while the lane is
// empty.
class StageExecutor final : public StageEngine {
 public:
  // `backend` and `pool` outlive the executor. InvalidArgument / Unimplemented: the model, recipe
  // or backend do not fit.
  static absl::StatusOr<std::unique_ptr<StageExecutor>> Create(StageExecutorOptions options,
                                                               Backend* backend, BufferPool* pool);

  absl::StatusOr<Output> Forward(const MicroBatch& place, Payload input, Payload labels) override;
  absl::StatusOr<Output> InputGradient(const MicroBatch& place, Payload output_gradient) override;
  absl::Status WeightGradient(const MicroBatch& place, bool step) override;
  absl::StatusOr<std::vector<double>> GradientSquares() override;
  absl::Status Step(const MicroBatch& place, double gradient_square) override;
  absl::StatusOr<Output> Evaluate(int64_t samples, Payload input, Payload labels) override;

  // Errors as Memory::Map and Backend::Allocate (dry_run/executor_dry_run.cc).
  absl::Status BeginDryRun() override;
  absl::Status EndDryRun() override;
  absl::Status ReadGradients(std::vector<float>& gradients) const override;

  // All that have to do with the state: errors as Memory::Map.
  absl::Status ImportState(const ModelState& state) override;
  absl::Status DrawState() override;
  // Gives each parameter and statistic to `change`, one copy at a time, and takes it back.
  absl::Status ChangeState(absl::FunctionRef<void(int layer, TensorData&)> change);
  absl::StatusOr<ModelState> ExportState() const override;
  void ChangeTraining(const TrainingChange& change) override {
    AddTrainingChange(change, options_->changes);
  }

  const Recipe& recipe() const { return *options_->recipe; }
  std::string numerics_class() const override { return programs_.numerics_class(); }
  const NumberFormat& numbers() const override { return numbers_; }
  // What was allocated of the backend's memory: weight versions, optimizer, gradients, statistics,
  // stashes, scratch; and copies that a backend of several processors makes.
  int64_t memory_bytes() const override { return memory_.bytes(); }
  int64_t stash_bytes() const override { return stashed_bytes_.load(std::memory_order_relaxed); }
  int64_t TakeUpdateBegin() override { return std::exchange(update_began_ns_, 0); }
  void FillRange(Telemetry& telemetry) const override;
  bool is_emulated() const override { return programs_.is_emulated(); }
  double ModelJoules(int64_t samples) const override {
    return programs_.ModelJoules(samples, options_->training.micro_batches);
  }
  Shape input_shape(int64_t samples) const override { return programs_.input_shape(samples); }
  Shape output_shape(int64_t samples) const override { return programs_.output_shape(samples); }
  const Stash& stash() const { return state_->stash(); }
  // What --batch-split auto found, for people; empty where nothing was measured.
  const std::string& slices_found() const { return programs_.slices_found(); }

 private:
  StageExecutor(std::unique_ptr<StageExecutorOptions> options, StepContexts steps,
                CompiledStage programs, Backend* backend, BufferPool* pool);
  // Where the forward looks ahead, weights of its own; else the newest.
  absl::StatusOr<Stash::Entry*> BeginForward(const MicroBatch& place);
  // Checks what came from a neighbour. InvalidArgument names tensor and micro-batch.
  absl::Status CheckReceived(Direction direction, const MicroBatch& place, const Shape& shape,
                             const Payload& tensor) const;
  absl::Status Step(const MicroBatch& place, const StepContext& context);
  // Behind the step of `place`.
  absl::Status AverageWeights(const MicroBatch& place);
  StepContext ContextOf(const MicroBatch& place) const;
  void EndMicroBatch();
  // Scratch that no micro-batch holds: the same piece until it is taken. Errors as
  // Backend::Allocate.
  absl::StatusOr<Memory*> FreeScratch();
  // Before the state changes.
  void NameWeights();

  // What a dry run puts back at its end, and what counts in place of the stage's.
  struct DryRun {
    explicit DryRun(const NumberFormat& numbers) : tally({.range = numbers.scales_loss()}) {}
    std::vector<std::byte> statistics;
    std::optional<GridBits> trained_grid_bits;
    // Where backwards take the step: those of training.
    std::optional<CompiledStage> programs;
    std::unique_ptr<Memory> gradients;
    std::vector<std::unique_ptr<Memory>> free_scratch;
    StageTally tally;
  };
  StageTally& tally() { return dry_run_ != nullptr ? dry_run_->tally : tally_; }
  const StageTally& tally() const { return dry_run_ != nullptr ? dry_run_->tally : tally_; }

  std::unique_ptr<StageExecutorOptions> options_;
  NumberFormat numbers_;  // of the recipe and the settings
  StepContexts steps_;
  CompiledStage programs_;
  BufferPool* pool_;
  bool forward_only_;  // all layers lie in ModelSpec::frozen_front
  bool has_trained_ = false;
  // StepContext::weights of evaluations; 0 once the stage has trained, so that backends keep nothing
  // of its weights in memory that training needs.
  int64_t evaluated_weights_ = 0;
  std::atomic<int64_t> stashed_bytes_ = 0;  // as the lane left it after a forward or a backward
  int64_t update_began_ns_ = 0;
  StageMemory memory_;
  std::unique_ptr<StageState> state_;
  // One, and one more for each weight-gradient that is deferred.
  std::vector<std::unique_ptr<Memory>> free_scratch_;
  StageTally tally_;
  std::unique_ptr<GateCosts> gates_;  // null: the model has no gates
  // Of the last micro-batch that was trained, for evaluations.
  std::optional<GridBits> trained_grid_bits_;
  std::unique_ptr<DryRun> dry_run_;  // null: the stage trains
};

}  // namespace runnel
