#pragma once

// Chooses the ranges to measure on a new device: those whose times reduce the uncertainty of all
// others most.

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "predictor/fit/features.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// Indices into `ranges` of up to `count` ranges, chosen greedily: each next one minimises the
// remaining variance, summed over the logarithms of all ranges' times, given the ones before and
// `measured`. Depends on the work alone (kTypicalSeconds), so that the choice is the same for every
// device. `measured` and `barred` are indices that are not chosen. The ranges must be of the model.
std::vector<size_t> MostInformativeRanges(const ModelWork& work,
                                          absl::Span<const LayerRange> ranges,
                                          absl::Span<const size_t> measured,
                                          absl::Span<const size_t> barred, size_t count);

}  // namespace runnel
