#include "tests/central/data/linear_model.h"

#include <algorithm>
#include <cmath>

namespace runnel {
namespace {

class LinearModel {
 public:
  LinearModel(int64_t features, int64_t classes)
      : features_(features),
        classes_(classes),
        weights_(classes * (features + 1), 0.0f),
        gradient_(weights_.size(), 0.0f) {}

  // Logits; the last weight of each row is the bias.
  std::vector<float> Forward(const std::vector<float>& x) const {
    std::vector<float> logits(classes_);
    for (int64_t c = 0; c < classes_; ++c) {
      const float* w = &weights_[c * (features_ + 1)];
      float lanes[8] = {};
      for (int64_t i = 0; i < features_; ++i) lanes[i % 8] += w[i] * x[i];
      logits[c] = w[features_];
      for (float lane : lanes) logits[c] += lane;
    }
    return logits;
  }

  void Accumulate(const std::vector<float>& x, int32_t label) {
    std::vector<float> p = Forward(x);
    const float top = *std::max_element(p.begin(), p.end());
    float sum = 0;
    for (float& value : p) sum += value = std::exp(value - top);
    for (int64_t c = 0; c < classes_; ++c) {
      const float error = p[c] / sum - (c == label ? 1.0f : 0.0f);
      float* g = &gradient_[c * (features_ + 1)];
      for (int64_t i = 0; i < features_; ++i) g[i] += error * x[i];
      g[features_] += error;
    }
  }

  void Step(float rate) {
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] -= rate * gradient_[i];
    std::fill(gradient_.begin(), gradient_.end(), 0.0f);
  }

  double Accuracy(const Dataset& dataset) const {
    std::vector<float> x(features_);
    int64_t right = 0;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      dataset.CopySample(i, absl::MakeSpan(x));
      const std::vector<float> logits = Forward(x);
      right += std::max_element(logits.begin(), logits.end()) - logits.begin() == dataset.label(i);
    }
    return static_cast<double>(right) / static_cast<double>(dataset.size());
  }

 private:
  int64_t features_;
  int64_t classes_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
};

}  // namespace

LinearAccuracy TrainLinearModel(const DatasetSplits& splits, int epochs, float rate) {
  constexpr int64_t kBatch = 64;
  const Dataset& train = *splits.train;
  LinearModel model(train.sample_shape().elements(), train.classes());
  std::vector<float> x(train.sample_shape().elements());
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const float falling = rate * static_cast<float>(epochs - epoch) / static_cast<float>(epochs);
    for (int64_t first = 0; first < train.size(); first += kBatch) {
      const int64_t end = std::min(first + kBatch, train.size());
      for (int64_t i = first; i < end; ++i) {
        train.CopySample(i, absl::MakeSpan(x));
        model.Accumulate(x, train.label(i));
      }
      model.Step(falling / static_cast<float>(end - first));
    }
  }
  return {model.Accuracy(train), model.Accuracy(*splits.test)};
}

}  // namespace runnel
