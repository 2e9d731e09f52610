#pragma once

// Small steps of a network on line, in plain code: central has no LibTorch (AccEPT 3.2, "adaptive
// update").

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/networks/mlp.h"

namespace runnel {

struct MlpAdaptation {
  int64_t steps = 400;
  int64_t rehearsal_batch = 8;  // samples of D in each step, beside all of D^
  double fresh_weight = 1;      // weight of D^'s mean loss; D's has weight 1
  double learning_rate = 1e-3;  // rate of Adam; falls to zero along a half cosine
  uint64_t seed = 1;
};

// Continual learning: trains `mlp` further on the device's own samples (D^) and on draws from its
// earlier training data (D), so that other devices are not forgotten. Normalisation stays. The loss
// is Huber's with its corner at 0.05 of the result, as in training. Deterministic: one order of
// operations, draws keyed by the seed. InvalidArgument: as CheckMlp; a sample of other sizes or
// with a number that is not finite.
absl::StatusOr<Mlp> AdaptMlp(const Mlp& mlp, absl::Span<const MlpSample> fresh,
                             absl::Span<const MlpSample> rehearsal, const MlpAdaptation& options);

// Corner of Huber's loss between square and line, in units of the result (a logarithm: 5 %).
inline constexpr double kHuberCorner = 0.05;

// InvalidArgument names the first sample that does not fit.
absl::Status CheckSamples(absl::Span<const MlpSample> samples, size_t encoding, size_t hardware);

}  // namespace runnel
