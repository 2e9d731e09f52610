#pragma once

// What a stage does against staleness: an asynchronous pipeline computes a micro-batch's gradient
// at weights that have moved on by `cap - 1` optimizer steps when the gradient arrives
// (AccEPT 2.1).
//
// Look-ahead: the forward does not use the newest weights but those to which the optimizer's state
// leads by the time of the micro-batch's own step, w - share * steps * rate * direction (the weight
// prediction of SpecTrain and XPipe; Nesterov's look-ahead for one step; OptimizerStep::look_ahead,
// distance = share * steps * rate formed in double and rounded once). Aggregation: every so
// many steps the mean of the newest N - i weight versions becomes the newest (FTPipeHD).
//
// Pure functions of FP32 arrays, single-threaded, the same bytes on every host: nothing is fused.

#include <cstdint>

#include "absl/types/span.h"

namespace runnel {

// out[i] = the mean of versions[k][i], summed in the order given. At least one version; `out` may
// be one of them.
void AverageVersions(absl::Span<const float* const> versions, int64_t elements, float* out);

}  // namespace runnel
