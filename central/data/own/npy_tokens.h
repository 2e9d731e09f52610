#pragma once

// Arrays of tokens: (N, positions) whole numbers, and a label for each sample or each position.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/data/dataset.h"
#include "central/data/own/place.h"

namespace runnel::data {

// Of LoadNpy's place with tokens=COUNT: tokens are below it. Labels (N) are classes; labels (N,
// positions) are tokens, one for each position. All are held in memory.
absl::StatusOr<DatasetSplits> LoadNpyTokens(const Place& place, uint64_t seed,
                                            absl::string_view usage);

}  // namespace runnel::data
