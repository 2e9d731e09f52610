#pragma once

// The rows `accept` and `accept+`: AccEPT's network (AccEPT 3.2), one for each model. Its first
// stream gets one bit a layer, its second the times of ten sub-models. Times are relative to the
// device's speed, which is the geometric mean of its ten times, so that the network learns the shape
// of a device and not how fast it is. Of all times we take logarithms, for which the paper says
// nothing.
//
// On line the network goes on learning, as published: from its ten times and all reported ones, with
// draws from the known devices in rehearsal; but only if that helps (adapt_network.h), which is
// ours. Each time it starts again from the weights of the file, so that the same measurements give
// the same network.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/known_device.h"
#include "predictor/networks/mlp.h"
#include "predictor/run/predictor_row.h"

namespace runnel {

// A sample for each measured range of a known device. ten: AccEPT's ten of the model.
std::vector<MlpSample> AcceptSamples(const KnownDevice& device, absl::Span<const LayerRange> ten);

// `accept`: the first member of the knowledge's network. InvalidArgument: one of the ten was not
// measured, or the network has other inputs.
absl::StatusOr<std::unique_ptr<const RangePredictor>> FitAccept(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples);

// `accept+`, ours: the mean of all members. Errors as FitAccept.
absl::StatusOr<std::unique_ptr<const RangePredictor>> FitAcceptPlus(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples);

}  // namespace runnel
