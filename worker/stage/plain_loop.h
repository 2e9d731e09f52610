#pragma once

// Training without any pipeline: forward, backward and step of one micro-batch after the other, on
// the whole model
// (--local-workers 0). The reference that every synchronous schedule must equal, bit for bit.

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/training/batching.h"
#include "worker/stage/stage_compute.h"

namespace runnel {

struct LossResult {
  double loss_sum = 0;
  int64_t correct = 0;
  ClassCounts counts = {};  // of an evaluation
  int64_t forward_ended_ns = 0;
};

// Trains on one micro-batch; the optimizer steps when it is the last of its mini-batch.
// `whole_model` is a stage with all layers. clock: tells when the forward ended; null: nothing does.
// Errors as StageCompute.
absl::StatusOr<LossResult> TrainMicroBatch(StageCompute& whole_model, const MicroBatch& place,
                                           Payload input, Payload labels,
                                           const Clock* clock = nullptr);

}  // namespace runnel
