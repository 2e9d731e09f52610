#pragma once

// Weights of runs that are over or stopped, for commands that go on with them or only look at them.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/records/checkpoint.h"
#include "central/run/run_setup.h"
#include "proto/base/log.h"

namespace runnel {

// The newest resumable check-point that can be read. Warns of damaged ones that are newer. Errors
// as ReadLatestCheckpoint.
absl::StatusOr<ReadableCheckpoint> NewestCheckpoint(const std::string& directory, Logger* logger);

// The newest weights of a folder: the end of a run, if it is further than the last barrier. Of a file:
// what it holds (best.runnel). Of a run with --ema their average.
absl::StatusOr<Checkpoint> NewestWeights(const std::string& directory, Logger* logger);

// InvalidArgument: the zoo's model is not the one that was trained any more. `where`: what holds
// it, "--checkpoint-dir D".
absl::Status CheckModel(const std::string& model_sha256, const RunSetup& setup,
                        const std::string& where);

// A run's settings for somebody who only looks at its weights, in a plain loop.
RunSettings WithoutTraining(RunSettings settings);

}  // namespace runnel
