#pragma once

// --validation-share: training samples that are held back to choose by (evaluations, the best
// check-point, --early-stop), so that the test set is asked once, at the end. Pure; any thread.

#include <cstdint>

#include "absl/status/statusor.h"
#include "central/data/dataset.h"

namespace runnel {

// Moves `share` of the training samples, drawn by the seed, to DatasetSplits::validation: of each
// class its share, rounded, where a sample has one label; else of all samples. InvalidArgument:
// that leaves no sample on one side, or the samples are those of a session of `learn`.
absl::StatusOr<DatasetSplits> HoldBackValidation(DatasetSplits data, double share, uint64_t seed);

}  // namespace runnel
