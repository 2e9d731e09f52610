#pragma once

// Training samples of a network from a task, and a network's predictions for a task, in two
// encodings.

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "predictor/run/device_task.h"
#include "predictor/run/mlp.h"

namespace runnel {

enum class MlpEncoding {
  // As published (AccEPT 3.2): one bit a layer; h and the result are logarithms of seconds. Such a
  // network serves one model.
  kLayers,
  // Counts of work (features.h), all logarithms relative to the ten representatives:
  //   encoding - mean(representatives' encodings), h - mean(h), log(seconds) - mean(h).
  // A device that is twice as fast gets half the times by construction, and one network serves all
  // models and batch sizes.
  kWork,
};

struct MlpSample {
  std::vector<float> encoding;
  std::vector<float> hardware;
  float log_seconds = 0;  // the target
};

// One sample for each range of the task, in the order of task.ranges.
std::vector<MlpSample> SamplesOf(const DeviceTask& task, MlpEncoding encoding);

// [range of the task]: the network's seconds. The network's sizes must be those of the encoding (a
// kLayers network: of the model).
std::vector<double> PredictSeconds(const Mlp& mlp, const DeviceTask& task, MlpEncoding encoding);

}  // namespace runnel
