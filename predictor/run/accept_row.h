#pragma once

// The row `accept`: AccEPT's network as published (AccEPT 3.2), one for each model. Its first
// stream gets one bit a layer, its second the times of ten sub-models; of both times and result we
// take logarithms, for which the paper says nothing.
//
// On line it goes on learning, as published: from its ten times and all reported ones, with draws
// from the known devices in rehearsal. Each time it starts again from the weights of the file, so
// that the same measurements give the same network.

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

// InvalidArgument: one of the ten was not measured, or the network has other inputs.
absl::StatusOr<std::unique_ptr<const RangePredictor>> FitAccept(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples);

}  // namespace runnel
