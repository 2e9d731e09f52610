#pragma once

// Which ranges to measure: those that tell most of the others.

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "predictor/run/features.h"
#include "proto/base/layer_range.h"

namespace runnel {

// Indices into `ranges` of up to `count` of them, the most telling first: each next one is that
// whose measurement takes most variance from the logarithms of all the ranges' times, given those
// before and `measured` (indices too). Goes by the work alone (kTypicalSeconds), so that it is the
// same for every device and known before any. None of `measured` and `barred` is among them.
// The ranges must be those of the model.
std::vector<size_t> MostTelling(const ModelWork& work, absl::Span<const LayerRange> ranges,
                                absl::Span<const size_t> measured, absl::Span<const size_t> barred,
                                size_t count);

}  // namespace runnel
