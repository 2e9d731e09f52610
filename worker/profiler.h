#pragma once

// Measures what each layer costs on this device: the figures that the planner cuts by.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/recipe.h"
#include "proto/base/clock.h"
#include "proto/base/model_spec.h"

namespace runnel {

// Seconds of forward, input-gradient, weight-gradient and update by layer, for micro-batches of
// `samples` samples: each layer as a stage of its own, on random values, the median of
// `repetitions` after one warm-up. repetitions >= 1. Errors as CompileStage and Backend::Prepare.
absl::StatusOr<std::vector<double>> ProfileLayers(const ModelSpec& model, const Recipe& recipe,
                                                  Backend& backend, int64_t samples,
                                                  int64_t repetitions, const Clock& clock);

}  // namespace runnel
