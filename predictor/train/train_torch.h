#pragma once

// Trains and adapts the latency predictor's network with LibTorch (AccEPT 3.2). No Torch type
// crosses this header. Deterministic: the same samples and options, the same network (one thread,
// one machine).

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/run/mlp.h"
#include "predictor/train/mlp_samples.h"

namespace runnel {

struct MlpTraining {
  int hidden_1 = 64;  // of the first stream
  int hidden_2 = 64;
  int hidden_3 = 64;  // of the second
  int64_t epochs = 300;
  int64_t batch = 128;
  double learning_rate = 3e-3;  // falls to zero along a half cosine
  uint64_t seed = 1;
};

// Options for the network over counts of work, which serves all models.
MlpTraining WorkTraining();

// Pre-training on the data set D. The loss is Huber's with its corner at 5 %: it weighs how many
// predictions are near, not how far the worst ones are. InvalidArgument: no samples, or samples of
// differing sizes.
absl::StatusOr<Mlp> TrainMlp(absl::Span<const MlpSample> samples, const MlpTraining& options);

struct MlpAdaptation {
  int64_t steps = 150;
  int64_t rehearsal_batch = 64;  // samples of D in each step, beside all of D^
  double fresh_weight = 1;       // weight of D^'s mean loss; D's has weight 1
  double learning_rate = 1e-3;   // falls to zero along a half cosine
  uint64_t seed = 1;
};

// Continual learning: trains `mlp` further on the device's own samples (D^) and on draws from its
// earlier training data (D), so that other devices are not forgotten. Normalisation stays.
absl::StatusOr<Mlp> AdaptMlp(const Mlp& mlp, absl::Span<const MlpSample> fresh,
                             absl::Span<const MlpSample> rehearsal, const MlpAdaptation& options);

// The network evaluated by LibTorch: the oracle of Mlp::LogSeconds.
absl::StatusOr<std::vector<double>> TorchLogSeconds(const Mlp& mlp,
                                                    absl::Span<const MlpSample> samples);

}  // namespace runnel
