#pragma once

// Chooses the sub-models (ranges of layers) to measure. Pure functions: the same model, the same
// ranges.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

inline constexpr int kRepresentatives = 10;
// Multiply-accumulates of one sample above which a range is not measured by default.
inline constexpr int64_t kMaxProfiledMacs = 160'000'000;

// The ten sub-models whose times characterise a device (AccEPT 3.2): all M ranges of layers in
// ascending order of MACs, those of rank k (M - 1) / 9. A range above `max_macs` (of one sample)
// does not count, unless it is a single layer: a device that takes minutes for it need not measure
// it. Ten entries, in ascending order of MACs; a model of few layers has some of them twice.
// InvalidArgument as InferShapes.
absl::StatusOr<std::vector<LayerRange>> RepresentativeRanges(const ModelSpec& model,
                                                             int64_t max_macs);

// The ranges of a profile: the representatives, each layer by itself (the look-up table needs them)
// and `extra` further ranges within max_macs, drawn by `seed`. Each once, ascending.
absl::StatusOr<std::vector<LayerRange>> ProfileSample(const ModelSpec& model, int64_t max_macs,
                                                      int extra, uint64_t seed);

}  // namespace runnel
