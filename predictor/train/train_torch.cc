#include "predictor/train/train_torch.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "predictor/networks/adapt_mlp.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Scale of the result of a network that starts at zero: such results are logarithms of a few
// percent.
constexpr float kZeroScale = 0.05f;

struct Tensors {
  torch::Tensor encoding;
  torch::Tensor hardware;
  torch::Tensor target;  // normalised
};

// The four fully connected layers.
struct Network {
  torch::nn::Linear layers[4] = {nullptr, nullptr, nullptr, nullptr};

  explicit Network(const Mlp& mlp) {
    const LinearLayer* from[] = {&mlp.encoding_1, &mlp.encoding_2, &mlp.joint_1, &mlp.joint_2};
    for (int i = 0; i < 4; ++i) {
      layers[i] = torch::nn::Linear(from[i]->inputs, from[i]->outputs);
      torch::NoGradGuard guard;
      layers[i]->weight.copy_(torch::from_blob(const_cast<float*>(from[i]->weights.data()),
                                               {from[i]->outputs, from[i]->inputs}));
      layers[i]->bias.copy_(
          torch::from_blob(const_cast<float*>(from[i]->bias.data()), {from[i]->outputs}));
    }
  }

  std::vector<torch::Tensor> parameters() const {
    std::vector<torch::Tensor> all;
    for (const torch::nn::Linear& layer : layers) {
      all.push_back(layer->weight);
      all.push_back(layer->bias);
    }
    return all;
  }

  torch::Tensor Forward(const torch::Tensor& encoding, const torch::Tensor& hardware) {
    torch::Tensor first = torch::relu(layers[1](torch::relu(layers[0](encoding))));
    torch::Tensor joint = torch::cat({first, hardware}, 1);
    return layers[3](torch::relu(layers[2](joint))).squeeze(1);
  }

  void CopyTo(Mlp& mlp) const {
    LinearLayer* to[] = {&mlp.encoding_1, &mlp.encoding_2, &mlp.joint_1, &mlp.joint_2};
    for (int i = 0; i < 4; ++i) {
      const torch::Tensor weight = layers[i]->weight.detach().contiguous();
      const torch::Tensor bias = layers[i]->bias.detach().contiguous();
      to[i]->weights.assign(weight.data_ptr<float>(), weight.data_ptr<float>() + weight.numel());
      to[i]->bias.assign(bias.data_ptr<float>(), bias.data_ptr<float>() + bias.numel());
    }
  }
};

// Mean and standard deviation of each of the `size` inputs that `get` returns for a sample. An
// input that never varies gets a deviation of 1.
template <typename Get>
void FitNormalisation(absl::Span<const MlpSample> samples, size_t size, Get get,
                      std::vector<float>& mean, std::vector<float>& scale) {
  mean.assign(size, 0);
  scale.assign(size, 1);
  for (size_t k = 0; k < size; ++k) {
    double sum = 0, squares = 0;
    for (const MlpSample& sample : samples) {
      const double value = get(sample, k);
      sum += value;
      squares += value * value;
    }
    const double average = sum / static_cast<double>(samples.size());
    const double variance = squares / static_cast<double>(samples.size()) - average * average;
    mean[k] = static_cast<float>(average);
    if (variance > 1e-12) scale[k] = static_cast<float>(std::sqrt(variance));
  }
}

Tensors ToTensors(const Mlp& mlp, absl::Span<const MlpSample> samples) {
  const auto count = static_cast<int64_t>(samples.size());
  Tensors tensors{torch::empty({count, mlp.encoding_size()}),
                  torch::empty({count, mlp.hardware_size()}), torch::empty({count})};
  float* encoding = tensors.encoding.data_ptr<float>();
  float* hardware = tensors.hardware.data_ptr<float>();
  float* target = tensors.target.data_ptr<float>();
  for (const MlpSample& sample : samples) {
    for (const float value : Normalised(sample.encoding, mlp.encoding_mean, mlp.encoding_scale))
      *encoding++ = value;
    for (const float value : Normalised(sample.hardware, mlp.hardware_mean, mlp.hardware_scale))
      *hardware++ = value;
    *target++ = (sample.target - mlp.output_mean) / mlp.output_scale;
  }
  return tensors;
}

LinearLayer RandomLayer(int inputs, int outputs, uint64_t seed, uint64_t index) {
  const CounterRandom random(seed, RandomPurpose::kInitialWeights, index, 0);
  LinearLayer layer{inputs, outputs, {}, std::vector<float>(static_cast<size_t>(outputs), 0.0f)};
  const double deviation = std::sqrt(2.0 / inputs);
  for (uint64_t i = 0; i < static_cast<uint64_t>(inputs) * static_cast<uint64_t>(outputs); ++i)
    layer.weights.push_back(static_cast<float>(deviation * random.Normal(i)));
  return layer;
}

Mlp Untrained(absl::Span<const MlpSample> samples, const MlpTraining& options) {
  Mlp mlp;
  const size_t encoding = samples[0].encoding.size();
  const size_t hardware = samples[0].hardware.size();
  FitNormalisation(
      samples, encoding, [](const MlpSample& s, size_t k) { return s.encoding[k]; },
      mlp.encoding_mean, mlp.encoding_scale);
  FitNormalisation(
      samples, hardware, [](const MlpSample& s, size_t k) { return s.hardware[k]; },
      mlp.hardware_mean, mlp.hardware_scale);
  std::vector<float> mean, scale;
  FitNormalisation(
      samples, 1, [](const MlpSample& s, size_t) { return s.target; }, mean, scale);
  mlp.output_mean = options.starts_at_zero ? 0 : mean[0];
  mlp.output_scale = options.starts_at_zero ? kZeroScale : scale[0];
  mlp.encoding_1 = RandomLayer(static_cast<int>(encoding), options.hidden_1, options.seed, 1);
  mlp.encoding_2 = RandomLayer(options.hidden_1, options.hidden_2, options.seed, 2);
  mlp.joint_1 =
      RandomLayer(options.hidden_2 + static_cast<int>(hardware), options.hidden_3, options.seed, 3);
  mlp.joint_2 = RandomLayer(options.hidden_3, 1, options.seed, 4);
  if (options.starts_at_zero) std::fill(mlp.joint_2.weights.begin(), mlp.joint_2.weights.end(), 0);
  return mlp;
}

torch::Tensor Loss(Network& network, const Mlp& mlp, const Tensors& samples) {
  const torch::Tensor error = network.Forward(samples.encoding, samples.hardware) - samples.target;
  const double corner = kHuberCorner / mlp.output_scale;
  return torch::nn::functional::smooth_l1_loss(error, torch::zeros_like(error),
                                               torch::enumtype::kMean(), corner);
}

Tensors Rows(const Tensors& all, const torch::Tensor& rows) {
  return {all.encoding.index_select(0, rows), all.hardware.index_select(0, rows),
          all.target.index_select(0, rows)};
}

void SetRate(torch::optim::AdamW& optimizer, double rate) {
  for (auto& group : optimizer.param_groups())
    static_cast<torch::optim::AdamWOptions&>(group.options()).lr(rate);
}

double HalfCosine(double rate, int64_t step, int64_t steps) {
  return rate * 0.5 * (1 + std::cos(M_PI * static_cast<double>(step) / static_cast<double>(steps)));
}

// A random permutation of 0..count-1, keyed by seed and draw.
torch::Tensor Shuffled(int64_t count, uint64_t seed, uint64_t draw) {
  const CounterRandom random(seed, RandomPurpose::kShuffle, 0, draw);
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
  for (int64_t i = count - 1; i > 0; --i) {
    const auto other = random.Below(static_cast<uint64_t>(i), static_cast<uint32_t>(i + 1));
    std::swap(order[static_cast<size_t>(i)], order[other]);
  }
  return torch::tensor(order);
}

}  // namespace

absl::StatusOr<Mlp> TrainMlp(absl::Span<const MlpSample> samples, const MlpTraining& options) {
  if (samples.empty()) return absl::InvalidArgumentError("predictor: there is nothing to learn");
  RUNNEL_RETURN_IF_ERROR(
      CheckSamples(samples, samples[0].encoding.size(), samples[0].hardware.size()));
  torch::set_num_threads(1);
  Mlp mlp = Untrained(samples, options);
  const Tensors all = ToTensors(mlp, samples);
  Network network(mlp);
  torch::optim::AdamW optimizer(
      network.parameters(),
      torch::optim::AdamWOptions(options.learning_rate).weight_decay(options.weight_decay));
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t steps = options.epochs * ((count + options.batch - 1) / options.batch);
  int64_t step = 0;
  torch::Generator noise = at::detail::createCPUGenerator(options.seed);
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const torch::Tensor order = Shuffled(count, options.seed, static_cast<uint64_t>(epoch));
    for (int64_t begin = 0; begin < count; begin += options.batch) {
      SetRate(optimizer, HalfCosine(options.learning_rate, step++, steps));
      optimizer.zero_grad();
      Tensors rows = Rows(all, order.slice(0, begin, std::min(count, begin + options.batch)));
      if (options.input_noise > 0) {
        for (torch::Tensor* inputs : {&rows.encoding, &rows.hardware})
          *inputs = *inputs + options.input_noise * torch::randn(inputs->sizes(), noise);
      }
      Loss(network, mlp, rows).backward();
      optimizer.step();
    }
  }
  network.CopyTo(mlp);
  RUNNEL_RETURN_IF_ERROR(CheckMlp(mlp));
  return mlp;
}

absl::StatusOr<std::vector<double>> TorchEvaluate(const Mlp& mlp,
                                                  absl::Span<const MlpSample> samples) {
  RUNNEL_RETURN_IF_ERROR(CheckMlp(mlp));
  RUNNEL_RETURN_IF_ERROR(CheckSamples(samples, static_cast<size_t>(mlp.encoding_size()),
                                      static_cast<size_t>(mlp.hardware_size())));
  torch::NoGradGuard guard;
  const Tensors tensors = ToTensors(mlp, samples);
  Network network(mlp);
  const torch::Tensor output = network.Forward(tensors.encoding, tensors.hardware).contiguous();
  std::vector<double> result;
  for (int64_t i = 0; i < output.numel(); ++i)
    result.push_back(double{mlp.output_mean} +
                     double{mlp.output_scale} * double{output.data_ptr<float>()[i]});
  return result;
}

}  // namespace runnel
