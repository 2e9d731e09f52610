#pragma once

// Arithmetic of one stage as the pipeline sees it. StageExecutor runs compiled programs; the
// simulator puts a cheap hash chain in its place.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/figures/class_counts.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/training/batching.h"

namespace runnel {

// One lane makes the calls, one at a time. A micro-batch's calls come in the order Forward,
// InputGradient, WeightGradient, each kind in ascending order of micro-batches; calls of other
// micro-batches may come in between.
class StageCompute {
 public:
  struct Output {
    Payload tensor;  // none where the loss is, or where there is no previous stage to send a
                     // gradient to
    // At the stage with the loss: the samples' losses, each the mean over its labels, added up; how
    // many labels were right.
    double loss_sum = 0;
    int64_t correct = 0;
    ClassCounts counts = {};           // of an evaluation
    std::vector<double> squares = {};  // GradientSquares
    int64_t update_began_ns = 0;       // StageEngine::TakeUpdateBegin, of a weight-gradient
  };

  virtual ~StageCompute() = default;
  // Uses the newest weights and stashes what the backward needs.
  virtual absl::StatusOr<Output> Forward(const MicroBatch& place, Payload input,
                                         Payload labels) = 0;
  // Uses the weight version that the forward used.
  virtual absl::StatusOr<Output> InputGradient(const MicroBatch& place,
                                               Payload output_gradient) = 0;
  // Then drops the stash of this micro-batch; with `step` the optimizer step on the newest weights,
  // clipped where --clip-norm is on as if no other stage had weights.
  virtual absl::Status WeightGradient(const MicroBatch& place, bool step) = 0;
  // Clipping over several stages, in place of `step`: behind the WeightGradient of the mini-batch's
  // last micro-batch the sum of the squares of each layer's gradient, by layer; then the step, with
  // the sum over all stages.
  virtual absl::StatusOr<std::vector<double>> GradientSquares() {
    return absl::UnimplementedError("has no gradients to clip");
  }
  virtual absl::Status Step(const MicroBatch& /*place*/, double /*gradient_square*/) {
    return absl::UnimplementedError("takes no step by itself");
  }
  // Evaluation mode with the newest weights; changes no state.
  virtual absl::StatusOr<Output> Evaluate(int64_t samples, Payload input, Payload labels) = 0;
};

}  // namespace runnel
