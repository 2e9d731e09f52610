#pragma once

// A stage's arithmetic together with the state that it works on, as the worker's control half sees
// it. StageExecutor runs compiled programs on a backend; the simulator of the whole cluster puts a
// hash chain in its place.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/figures/telemetry.h"
#include "proto/base/model/model_state.h"
#include "proto/base/model/number_format.h"
#include "proto/base/tensor/shape.h"
#include "proto/base/training/training_change.h"
#include "worker/stage/stage_compute.h"

namespace runnel {

// Not thread-safe: the compute lane owns it; the methods here only while that lane is empty, but
// for memory_bytes and the shapes. An engine that trains overrides all; one that only evaluates
// keeps the FailedPrecondition of what belongs to training.
class StageEngine : public StageCompute {
 public:
  absl::StatusOr<Output> Forward(const MicroBatch&, Payload, Payload) override {
    return OnlyEvaluates();
  }
  absl::StatusOr<Output> InputGradient(const MicroBatch&, Payload) override {
    return OnlyEvaluates();
  }
  absl::Status WeightGradient(const MicroBatch&, bool) override { return OnlyEvaluates(); }
  // State of these layers at a barrier. Import checks everything (CheckState, zeros may be left
  // out) before it changes anything. Draw makes the initial state, a layer at a time, from the
  // training's seed. All: errors of the device's memory.
  virtual absl::Status ImportState(const ModelState& state) = 0;
  virtual absl::Status DrawState() { return OnlyEvaluates(); }
  virtual absl::StatusOr<ModelState> ExportState() const { return OnlyEvaluates(); }
  // Applies a change from the next micro-batch on.
  virtual void ChangeTraining(const TrainingChange&) {}

  // Between them Forward, InputGradient and WeightGradient without a step leave no trace in the state
  // and in what is counted. No micro-batch is in flight at either. Unimplemented: the stage's
  // weight-gradients are no floats.
  virtual absl::Status BeginDryRun() { return OnlyEvaluates(); }
  virtual absl::Status EndDryRun() { return OnlyEvaluates(); }
  // In a dry run, behind a WeightGradient: its result, one tensor after the other.
  virtual absl::Status ReadGradients(std::vector<float>&) const { return OnlyEvaluates(); }

  // Of the backend that computes.
  virtual std::string numerics_class() const = 0;
  // False: it only evaluates, and that is what its telemetry counts.
  virtual bool trains() const { return true; }
  // Number format of the recipe. Any thread.
  virtual const NumberFormat& numbers() const = 0;
  // Memory of the device that the stage takes. Any thread.
  virtual int64_t memory_bytes() const = 0;
  // Of it, activations of micro-batches in flight and weights that are not the newest. Any thread.
  virtual int64_t stash_bytes() const { return 0; }
  // When the update of the last WeightGradient began, once; 0: it had none that is apart.
  virtual int64_t TakeUpdateBegin() { return 0; }
  // What gradients and activations of f16 could not hold, effective multiply-adds of grids. Any
  // thread.
  virtual void FillRange(Telemetry& /*telemetry*/) const {}
  // Energy of training one micro-batch of this many samples by the model of work_energy.h, with its
  // part of the step. Any thread.
  virtual double ModelJoules(int64_t /*samples*/) const { return 0; }
  // The device's counters of energy say nothing of a processor that is emulated. Any thread.
  virtual bool is_emulated() const { return false; }
  // Boundary tensors of `samples` samples.
  virtual Shape input_shape(int64_t samples) const = 0;
  virtual Shape output_shape(int64_t samples) const = 0;

 private:
  static absl::Status OnlyEvaluates() {
    return absl::FailedPreconditionError("a model in integers is evaluated, it does not train");
  }
};

}  // namespace runnel
