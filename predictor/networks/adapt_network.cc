#include "predictor/networks/adapt_network.h"

#include <cmath>
#include <vector>

#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::StatusOr<PredictorNetwork> Adapt(const PredictorNetwork& network,
                                       absl::Span<const MlpSample> fresh,
                                       absl::Span<const MlpSample> rehearsal,
                                       const MlpAdaptation& options) {
  PredictorNetwork adapted = network;
  for (Mlp& member : adapted.members) {
    RUNNEL_ASSIGN_OR_RETURN(member, AdaptMlp(member, fresh, rehearsal, options));
  }
  return adapted;
}

double SumOfErrors(const PredictorNetwork& network, absl::Span<const MlpSample> samples) {
  double sum = 0;
  for (const MlpSample& sample : samples)
    sum += std::abs(network.Evaluate(sample.encoding, sample.hardware) - sample.target);
  return sum;
}

}  // namespace

absl::StatusOr<PredictorNetwork> AdaptIfItHelps(const PredictorNetwork& network,
                                                absl::Span<const MlpSample> fresh,
                                                absl::Span<const MlpSample> rehearsal,
                                                const MlpAdaptation& options) {
  // Also checks the samples, before any of them is evaluated.
  RUNNEL_ASSIGN_OR_RETURN(PredictorNetwork adapted, Adapt(network, fresh, rehearsal, options));
  if (fresh.size() < kJudgingParts) return network;
  double as_it_is = 0, with_adaptation = 0;
  for (size_t part = 0; part < kJudgingParts; ++part) {
    std::vector<MlpSample> learned, judging;
    for (size_t i = 0; i < fresh.size(); ++i)
      (i % kJudgingParts == part ? judging : learned).push_back(fresh[i]);
    RUNNEL_ASSIGN_OR_RETURN(const PredictorNetwork other,
                            Adapt(network, learned, rehearsal, options));
    as_it_is += SumOfErrors(network, judging);
    with_adaptation += SumOfErrors(other, judging);
  }
  return with_adaptation < as_it_is ? adapted : network;
}

}  // namespace runnel
