#pragma once

// What the instructions of a micro-batch are told of its place in the run: rate, bits, scale.

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/ir/compiler.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/optimizer.h"

namespace runnel {

struct StageExecutorOptions;

// Reads the options as they are at a call, so a change of the training counts at once. One thread.
class StepContexts {
 public:
  // `options` outlive it. InvalidArgument: their optimizer or precision is none, or the recipe has
  // no such bits.
  static absl::StatusOr<StepContexts> Create(const StageExecutorOptions* options);

  const Optimizer* optimizer() const { return optimizer_.optimizer; }
  // All but who counts (StepContext::range, work, choices) and the sign of a price.
  StepContext At(const MicroBatch& place, int64_t labels_per_sample) const;
  // Of an evaluation behind a micro-batch that was trained with these bits; none: nothing was.
  GridBits EvaluatedBits(const std::optional<GridBits>& trained) const;
  // How far a forward looks ahead of the newest weights (staleness.h), which miss the steps of
  // `steps_between` earlier ones in flight, at this rate; 0: not at all.
  double LookAhead(int64_t steps_between, double learning_rate) const;
  // Newest versions whose mean is taken behind this step; 0: none is.
  int64_t VersionsToAverage(int64_t step) const;

 private:
  StepContexts(const StageExecutorOptions* options, OptimizerChoice optimizer,
               PrecisionSetting precision);

  const StageExecutorOptions* options_;
  bool scales_loss_;
  OptimizerChoice optimizer_;
  PrecisionSetting precision_;
};

}  // namespace runnel
