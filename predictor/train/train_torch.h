#pragma once

// Trains a latency network with LibTorch (AccEPT 3.2). No Torch type crosses this header.
// Deterministic: the same samples and options, the same network (one thread, one machine).

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/networks/mlp.h"

namespace runnel {

struct MlpTraining {
  int hidden_1 = 64;  // units of the first stream
  int hidden_2 = 64;
  int hidden_3 = 64;  // units of the second stream
  int64_t epochs = 300;
  int64_t batch = 128;
  double learning_rate = 3e-3;  // rate of Adam; falls to zero along a half cosine
  // Standard deviation of noise that is added to each normalised input, drawn anew for each epoch:
  // keeps a network with few samples from learning them by heart.
  double input_noise = 0;
  double weight_decay = 0;  // share of each parameter that a step at rate 1 takes away (AdamW)
  // The last layer begins with zeros, and a result of 0 is an output of 0: without training the
  // network says 0.
  bool starts_at_zero = false;
  uint64_t seed = 1;
};

// Pre-training on the data set D. The loss is Huber's with its corner at 0.05 (kHuberCorner): it
// weighs how many predictions are near, not how far the worst ones are. InvalidArgument: no
// samples, or samples of differing sizes.
absl::StatusOr<Mlp> TrainMlp(absl::Span<const MlpSample> samples, const MlpTraining& options);

// The network evaluated by LibTorch: the oracle of Mlp::Evaluate.
absl::StatusOr<std::vector<double>> TorchEvaluate(const Mlp& mlp,
                                                  absl::Span<const MlpSample> samples);

}  // namespace runnel
