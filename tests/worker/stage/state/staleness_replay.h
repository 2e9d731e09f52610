#pragma once

// The oracle of every pipeline: one process, one thread, every weight version kept for ever. It
// follows the order that NextAction gives each stage and knows nothing of runtimes, stashes, lanes,
// sessions or transports.

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/training.h"

namespace runnel {

struct StalenessReplayOptions {
  ModelSpec model;
  Plan plan;
  TrainingSettings training;
  std::vector<int64_t>
      barriers;      // sequences at which the pipeline drains, ascending; the last one ends the run
  ModelState state;  // at the beginning
  // Fill a micro-batch's samples and labels.
  std::function<void(const MicroBatch& place, absl::Span<float> samples,
                     absl::Span<int32_t> labels)>
      fill;
};

// The state after the last barrier; encoders are left out.
absl::StatusOr<ModelState> ReplayStaleness(const StalenessReplayOptions& options, Backend* backend);

}  // namespace runnel
