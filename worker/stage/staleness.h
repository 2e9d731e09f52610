#pragma once

// What a stage does against staleness: an asynchronous pipeline computes a micro-batch's gradient
// at weights that have moved on by `cap - 1` optimizer steps when the gradient arrives
// (AccEPT 2.1).
//
// Look-ahead: the forward does not use the newest weights but those that the momentum will have led
// to by the time of the micro-batch's own step, w - share * steps * rate * velocity (the weight
// prediction of SpecTrain and XPipe; Nesterov's look-ahead for one step). Aggregation: every so
// many steps the mean of the newest N - i weight versions becomes the newest (FTPipeHD).
//
// Pure functions of FP32 arrays, single-threaded, the same bytes on every host: nothing is fused.

#include <cstdint>

#include "absl/types/span.h"

namespace runnel {

// out[i] = weights[i] - distance * velocity[i]; distance = share * steps * rate, formed by the
// caller in double and rounded once. `out` may be `weights`.
void LookAhead(const float* weights, const float* velocity, float distance, int64_t elements,
               float* out);

// out[i] = the mean of versions[k][i], summed in the order given. At least one version; `out` may
// be one of them.
void AverageVersions(absl::Span<const float* const> versions, int64_t elements, float* out);

}  // namespace runnel
