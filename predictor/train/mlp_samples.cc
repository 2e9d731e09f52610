#include "predictor/train/mlp_samples.h"

#include <cmath>

namespace runnel {
namespace {

std::vector<float> LayerBits(const DeviceTask& task, const LayerRange& range) {
  std::vector<float> bits(static_cast<size_t>(task.work->layers()), 0.0f);
  for (int l = range.first_layer; l <= range.last_layer; ++l) bits[static_cast<size_t>(l)] = 1;
  return bits;
}

float Mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

// Mean of the representatives' encodings.
std::vector<float> MeanEncoding(const DeviceTask& task) {
  std::vector<float> mean(kWorkKinds, 0.0f);
  for (const size_t probe : task.probes) {
    const std::vector<float> one = Encoding(task.work->Of(task.ranges[probe]));
    for (size_t k = 0; k < mean.size(); ++k)
      mean[k] += one[k] / static_cast<float>(task.probes.size());
  }
  return mean;
}

}  // namespace

std::vector<MlpSample> SamplesOf(const DeviceTask& task, MlpEncoding encoding) {
  std::vector<float> hardware = task.Hardware();
  const float level = encoding == MlpEncoding::kWork ? Mean(hardware) : 0.0f;
  for (float& value : hardware) value -= level;
  const std::vector<float> mean = MeanEncoding(task);
  std::vector<MlpSample> samples;
  for (size_t i = 0; i < task.ranges.size(); ++i) {
    MlpSample sample;
    sample.hardware = hardware;
    sample.log_seconds = static_cast<float>(std::log(task.seconds[i])) - level;
    if (encoding == MlpEncoding::kLayers) {
      sample.encoding = LayerBits(task, task.ranges[i]);
    } else {
      sample.encoding = Encoding(task.work->Of(task.ranges[i]));
      for (size_t k = 0; k < mean.size(); ++k) sample.encoding[k] -= mean[k];
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<double> PredictSeconds(const Mlp& mlp, const DeviceTask& task, MlpEncoding encoding) {
  const double level = encoding == MlpEncoding::kWork ? Mean(task.Hardware()) : 0.0;
  std::vector<double> seconds;
  for (const MlpSample& sample : SamplesOf(task, encoding))
    seconds.push_back(std::exp(mlp.LogSeconds(sample.encoding, sample.hardware) + level));
  return seconds;
}

}  // namespace runnel
