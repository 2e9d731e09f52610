#pragma once

// A network's small steps on line, taken only where they help (AccEPT 3.2, "adaptive update").

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/networks/adapt_mlp.h"
#include "predictor/networks/network_file.h"

namespace runnel {

// Parts of the device's own samples that judge in turn whether adaptation helps.
inline constexpr size_t kJudgingParts = 2;

// Adapts every member (AdaptMlp), if that helps: each part of `fresh` is predicted by a network
// that was adapted to the other parts, and by `network` as it is. Unless the sum of the absolute
// errors is smaller with adaptation, `network` comes back unchanged; so also with fewer samples than
// parts. Errors as AdaptMlp.
absl::StatusOr<PredictorNetwork> AdaptIfItHelps(const PredictorNetwork& network,
                                                absl::Span<const MlpSample> fresh,
                                                absl::Span<const MlpSample> rehearsal,
                                                const MlpAdaptation& options);

}  // namespace runnel
