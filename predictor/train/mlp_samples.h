#pragma once

// What the network sees of a task and what it says of it, for its two encodings.

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "predictor/run/device_task.h"
#include "predictor/run/mlp.h"

namespace runnel {

enum class MlpEncoding {
  // AccEPT 3.2 as it is: one bit a layer, h and the result as logarithms of seconds. A network of
  // this kind knows one model.
  kLayers,
  // Counts of work (features.h) against those of the ten representatives, h against its own mean
  // and the result against the same mean: twice as fast a device gets half the times whatever the
  // network learned, and one network serves all models and batch sizes.
  kWork,
};

struct MlpSample {
  std::vector<float> encoding;
  std::vector<float> hardware;
  float log_seconds = 0;  // the target
};

// One sample a range of the task, in its order.
std::vector<MlpSample> SamplesOf(const DeviceTask& task, MlpEncoding encoding);

// The network's seconds by range of the task. Sizes must fit: a kLayers network to the model.
std::vector<double> PredictSeconds(const Mlp& mlp, const DeviceTask& task, MlpEncoding encoding);

}  // namespace runnel
