#include "predictor/train/train_torch.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "predictor/networks/adapt_mlp.h"

namespace runnel::train_torch_test {
namespace {

// Devices of a made-up world: log seconds = speed + work's logarithm + a term of both.
std::vector<MlpSample> World(uint32_t seed, int devices) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<MlpSample> samples;
  for (int device = 0; device < devices; ++device) {
    const float speed = normal(random), memory = normal(random);
    for (int i = 0; i < 40; ++i) {
      const float macs = normal(random), bytes = normal(random);
      samples.push_back({{macs, bytes}, {speed, memory}, speed + macs + 0.3f * memory * bytes - 6});
    }
  }
  return samples;
}

MlpTraining Quick() {
  MlpTraining training;
  training.hidden_1 = training.hidden_2 = training.hidden_3 = 24;
  training.epochs = 60;
  training.batch = 64;
  return training;
}

double MeanError(const Mlp& mlp, const std::vector<MlpSample>& samples) {
  double sum = 0;
  for (const MlpSample& sample : samples)
    sum += std::abs(mlp.Evaluate(sample.encoding, sample.hardware) - sample.target);
  return sum / static_cast<double>(samples.size());
}

TEST(TrainTorch, LearnsAndIsDeterministic) {
  const std::vector<MlpSample> samples = World(1, 20);
  const absl::StatusOr<Mlp> mlp = TrainMlp(samples, Quick());
  ASSERT_TRUE(mlp.ok()) << mlp.status();
  EXPECT_LT(MeanError(*mlp, samples), 0.1);  // the targets' own spread is about 1.5
  EXPECT_EQ(*TrainMlp(samples, Quick()), *mlp);
}

// Plain evaluation sums in double, LibTorch in float: each of the four layers rounds its output and
// sums n terms to n half-units of 2^-24 of the sum of their sizes, which the next layer passes on.
// The bound follows both through the absolute values of the weights.
double RoundingBound(const Mlp& mlp, const MlpSample& sample) {
  constexpr double kUnit = 0x1p-24;
  const auto pass = [&](const LinearLayer& layer, const std::vector<double>& value,
                        const std::vector<double>& error, std::vector<double>& out_error) {
    std::vector<double> out;
    out_error.clear();
    for (int row = 0; row < layer.outputs; ++row) {
      double size = std::abs(layer.bias[size_t(row)]), passed = 0;
      for (int i = 0; i < layer.inputs; ++i) {
        const double w = std::abs(layer.weights[size_t(row) * size_t(layer.inputs) + size_t(i)]);
        size += w * value[size_t(i)];
        passed += w * error[size_t(i)];
      }
      out.push_back(size);
      out_error.push_back(passed + (layer.inputs + 2) * kUnit * size);
    }
    return out;
  };
  const auto inputs = [&](const std::vector<float>& x, const std::vector<float>& mean,
                          const std::vector<float>& scale) {
    std::vector<double> values;
    for (size_t i = 0; i < x.size(); ++i) values.push_back(std::abs((x[i] - mean[i]) / scale[i]));
    return values;
  };
  std::vector<double> value = inputs(sample.encoding, mlp.encoding_mean, mlp.encoding_scale);
  std::vector<double> error(value.size(), 0), next;
  value = pass(mlp.encoding_1, value, error, next);
  error = next;
  value = pass(mlp.encoding_2, value, error, next);
  error = next;
  for (double h : inputs(sample.hardware, mlp.hardware_mean, mlp.hardware_scale)) {
    value.push_back(h);
    error.push_back(0);
  }
  value = pass(mlp.joint_1, value, error, next);
  error = next;
  pass(mlp.joint_2, value, error, next);
  return std::abs(mlp.output_scale) * next[0] + 4 * kUnit * std::abs(sample.target);
}

TEST(TrainTorch, PlainEvaluationEqualsLibTorch) {
  const std::vector<MlpSample> samples = World(2, 10);
  const absl::StatusOr<Mlp> mlp = TrainMlp(samples, Quick());
  ASSERT_TRUE(mlp.ok());
  const absl::StatusOr<std::vector<double>> torch = TorchEvaluate(*mlp, samples);
  ASSERT_TRUE(torch.ok());
  for (size_t i = 0; i < samples.size(); ++i) {
    const double plain = mlp->Evaluate(samples[i].encoding, samples[i].hardware);
    const double bound = RoundingBound(*mlp, samples[i]);
    EXPECT_NEAR(plain, (*torch)[i], bound);
    EXPECT_LT(bound, 1e-2);
  }
}

// A device of another kind: adaptation with a few of its samples halves the error there and, with
// rehearsal, keeps the others.
TEST(TrainTorch, AdaptsWithoutForgetting) {
  const std::vector<MlpSample> known = World(3, 20);
  const absl::StatusOr<Mlp> mlp = TrainMlp(known, Quick());
  ASSERT_TRUE(mlp.ok());
  std::vector<MlpSample> device = World(4, 1);
  for (MlpSample& sample : device) {
    sample.hardware[1] += 4;  // told apart from all others
    sample.target += 0.8f;
  }
  const std::vector<MlpSample> fresh(device.begin(), device.begin() + 8);
  const std::vector<MlpSample> rest(device.begin() + 8, device.end());
  const absl::StatusOr<Mlp> adapted = AdaptMlp(*mlp, fresh, known, MlpAdaptation{});
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  EXPECT_LT(MeanError(*adapted, rest), MeanError(*mlp, rest) / 2);
  // The targets' own spread is about 1.5; without rehearsal more of the others is lost.
  EXPECT_LT(MeanError(*adapted, known), 0.2);
  const absl::StatusOr<Mlp> alone = AdaptMlp(*mlp, fresh, {}, MlpAdaptation{});
  ASSERT_TRUE(alone.ok());
  EXPECT_LT(MeanError(*adapted, known), MeanError(*alone, known));
  EXPECT_EQ(*AdaptMlp(*mlp, {}, known, MlpAdaptation{}), *mlp);
}

// Without a reason to correct anything the network says 0, whatever comes in.
TEST(TrainTorch, DecayMakesWeightsSmall) {
  const std::vector<MlpSample> samples = World(1, 20);
  const auto sum_of_squares = [&](double decay) {
    MlpTraining training = Quick();
    training.weight_decay = decay;
    const Mlp mlp = *TrainMlp(samples, training);
    double sum = 0;
    for (const LinearLayer* layer : {&mlp.encoding_1, &mlp.encoding_2, &mlp.joint_1, &mlp.joint_2})
      for (const float weight : layer->weights) sum += double{weight} * double{weight};
    return sum;
  };
  EXPECT_LT(sum_of_squares(3), sum_of_squares(0) / 2);
}

TEST(TrainTorch, StartsAtZero) {
  std::vector<MlpSample> samples = World(6, 4);
  for (MlpSample& sample : samples) sample.target = 0;
  MlpTraining training = Quick();
  training.starts_at_zero = true;
  training.input_noise = 0.7;
  training.epochs = 2;
  const absl::StatusOr<Mlp> mlp = TrainMlp(samples, training);
  ASSERT_TRUE(mlp.ok()) << mlp.status();
  for (const MlpSample& sample : World(7, 2))
    EXPECT_EQ(mlp->Evaluate(sample.encoding, sample.hardware), 0);
  EXPECT_EQ(*TrainMlp(samples, training), *mlp);
}

TEST(TrainTorch, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(TrainMlp({}, Quick()).ok());
  std::vector<MlpSample> samples = World(5, 2);
  samples[3].encoding.pop_back();
  EXPECT_FALSE(TrainMlp(samples, Quick()).ok());
  samples = World(5, 2);
  samples[3].target = std::nanf("");
  EXPECT_FALSE(TrainMlp(samples, Quick()).ok());
}

}  // namespace
}  // namespace runnel::train_torch_test
