#include "predictor/networks/adapt_mlp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Floats = std::vector<float>;

bool AllFinite(const Floats& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// A sample as the network sees it.
struct Row {
  Floats encoding, hardware;
  float target = 0;
};

std::vector<Row> RowsOf(const Mlp& mlp, absl::Span<const MlpSample> samples) {
  std::vector<Row> rows;
  for (const MlpSample& sample : samples) {
    rows.push_back({Normalised(sample.encoding, mlp.encoding_mean, mlp.encoding_scale),
                    Normalised(sample.hardware, mlp.hardware_mean, mlp.hardware_scale),
                    (sample.target - mlp.output_mean) / mlp.output_scale});
  }
  return rows;
}

// sum += factor * x.
void AddScaled(const float* x, float factor, size_t count, float* __restrict__ sum) {
  for (size_t i = 0; i < count; ++i) sum[i] += factor * x[i];
}

// One fully connected layer with its gradient and Adam's moments.
class TrainedLayer {
 public:
  explicit TrainedLayer(LinearLayer* layer)
      : layer_(layer),
        columns_(layer->weights.size()),
        gradient_(layer->weights.size() + layer->bias.size(), 0),
        mean_(gradient_.size(), 0),
        square_(gradient_.size(), 0) {
    FillColumns();
  }

  Floats Forward(const Floats& x, bool relu) const {
    Floats y(layer_->bias);
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 0) AddScaled(columns_.data() + i * y.size(), x[i], y.size(), y.data());
    }
    if (relu) {
      for (float& value : y) value = std::max(value, 0.0f);
    }
    return y;
  }

  // Adds the gradients of weights and biases.
  void AddGradient(const Floats& x, const Floats& y_gradient) {
    float* bias = gradient_.data() + layer_->weights.size();
    for (size_t row = 0; row < y_gradient.size(); ++row) {
      const float g = y_gradient[row];
      if (g == 0) continue;
      AddScaled(x.data(), g, x.size(), gradient_.data() + row * x.size());
      bias[row] += g;
    }
  }

  // The gradient of the first `inputs` inputs.
  Floats InputGradient(size_t inputs, const Floats& y_gradient) const {
    Floats x_gradient(inputs, 0);
    for (size_t row = 0; row < y_gradient.size(); ++row) {
      const float* weights = layer_->weights.data() + row * static_cast<size_t>(layer_->inputs);
      if (y_gradient[row] != 0) AddScaled(weights, y_gradient[row], inputs, x_gradient.data());
    }
    return x_gradient;
  }

  // Adam. step: from 1.
  void Step(float rate, int64_t step) {
    constexpr float kMean = 0.9f, kSquare = 0.999f, kLeast = 1e-8f;
    const auto power = static_cast<float>(step);
    const float mean_share = 1 - std::pow(kMean, power);
    const float square_share = 1 - std::pow(kSquare, power);
    const float* gradient = gradient_.data();
    float *mean = mean_.data(), *square = square_.data();
    for (Floats* values : {&layer_->weights, &layer_->bias}) {
      float* value = values->data();
      for (size_t i = 0; i < values->size(); ++i) {
        mean[i] = kMean * mean[i] + (1 - kMean) * gradient[i];
        square[i] = kSquare * square[i] + (1 - kSquare) * gradient[i] * gradient[i];
        value[i] -= rate * (mean[i] / mean_share) / (std::sqrt(square[i] / square_share) + kLeast);
      }
      gradient += values->size();
      mean += values->size();
      square += values->size();
    }
    std::fill(gradient_.begin(), gradient_.end(), 0.0f);
    FillColumns();
  }

 private:
  void FillColumns() {
    const size_t inputs = static_cast<size_t>(layer_->inputs), outputs = layer_->bias.size();
    const float* weights = layer_->weights.data();
    float* columns = columns_.data();
    for (size_t row = 0; row < outputs; ++row) {
      for (size_t i = 0; i < inputs; ++i) columns[i * outputs + row] = weights[row * inputs + i];
    }
  }

  LinearLayer* layer_;
  Floats columns_;   // the weights by input: the compiler then adds to several outputs at a time
  Floats gradient_;  // weights, then bias
  Floats mean_, square_;
};

// The gradient of ReLU: 0 where its result is 0. The output may have more elements than ReLU's.
void MaskByOutput(const Floats& output, Floats& gradient) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (output[i] <= 0) gradient[i] = 0;
  }
}

class Trainer {
 public:
  explicit Trainer(Mlp* mlp)
      : layers_{TrainedLayer(&mlp->encoding_1), TrainedLayer(&mlp->encoding_2),
                TrainedLayer(&mlp->joint_1), TrainedLayer(&mlp->joint_2)},
        corner_(static_cast<float>(kHuberCorner) / mlp->output_scale) {}

  // Adds weight * (gradient of the sample's loss).
  void Learn(const Row& row, float weight) {
    const Floats first = layers_[0].Forward(row.encoding, true);
    Floats joint = layers_[1].Forward(first, true);
    const size_t hidden = joint.size();
    joint.insert(joint.end(), row.hardware.begin(), row.hardware.end());
    const Floats third = layers_[2].Forward(joint, true);
    const float error = layers_[3].Forward(third, false)[0] - row.target;
    const float slope = std::clamp(error / corner_, -1.0f, 1.0f) * weight;
    Floats gradient = {slope};
    layers_[3].AddGradient(third, gradient);
    gradient = layers_[3].InputGradient(third.size(), gradient);
    MaskByOutput(third, gradient);
    layers_[2].AddGradient(joint, gradient);
    gradient = layers_[2].InputGradient(hidden, gradient);
    MaskByOutput(joint, gradient);
    layers_[1].AddGradient(first, gradient);
    gradient = layers_[1].InputGradient(first.size(), gradient);
    MaskByOutput(first, gradient);
    layers_[0].AddGradient(row.encoding, gradient);
  }

  void Step(double rate, int64_t step) {
    for (TrainedLayer& layer : layers_) layer.Step(static_cast<float>(rate), step);
  }

 private:
  std::array<TrainedLayer, 4> layers_;
  float corner_;  // corner of Huber's loss, in units of the output
};

}  // namespace

absl::Status CheckSamples(absl::Span<const MlpSample> samples, size_t encoding, size_t hardware) {
  for (size_t i = 0; i < samples.size(); ++i) {
    const MlpSample& sample = samples[i];
    if (sample.encoding.size() == encoding && sample.hardware.size() == hardware &&
        AllFinite(sample.encoding) && AllFinite(sample.hardware) && std::isfinite(sample.target))
      continue;
    return absl::InvalidArgumentError(absl::StrCat("predictor: sample ", i, " does not fit"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Mlp> AdaptMlp(const Mlp& mlp, absl::Span<const MlpSample> fresh,
                             absl::Span<const MlpSample> rehearsal, const MlpAdaptation& options) {
  RUNNEL_RETURN_IF_ERROR(CheckMlp(mlp));
  const auto encoding = static_cast<size_t>(mlp.encoding_size());
  const auto hardware = static_cast<size_t>(mlp.hardware_size());
  RUNNEL_RETURN_IF_ERROR(CheckSamples(fresh, encoding, hardware));
  RUNNEL_RETURN_IF_ERROR(CheckSamples(rehearsal, encoding, hardware));
  if (fresh.empty()) return mlp;
  Mlp adapted = mlp;
  Trainer trainer(&adapted);
  const std::vector<Row> own = RowsOf(mlp, fresh);
  const std::vector<Row> others = RowsOf(mlp, rehearsal);
  const int64_t drawn = std::min(static_cast<int64_t>(others.size()), options.rehearsal_batch);
  const float own_weight =
      static_cast<float>(options.fresh_weight) / static_cast<float>(own.size());
  for (int64_t step = 0; step < options.steps; ++step) {
    for (const Row& row : own) trainer.Learn(row, own_weight);
    const CounterRandom random(options.seed, RandomPurpose::kShuffle, 1,
                               static_cast<uint64_t>(step));
    for (int64_t i = 0; i < drawn; ++i) {
      const uint32_t which =
          random.Below(static_cast<uint64_t>(i), static_cast<uint32_t>(others.size()));
      trainer.Learn(others[which], 1.0f / static_cast<float>(drawn));
    }
    const double done = static_cast<double>(step) / static_cast<double>(options.steps);
    trainer.Step(options.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done)), step + 1);
  }
  RUNNEL_RETURN_IF_ERROR(CheckMlp(adapted));
  return adapted;
}

}  // namespace runnel
