#include "predictor/networks/adapt_mlp.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/predictor/random_network.h"

namespace runnel::adapt_mlp_test {
namespace {

Mlp Small(uint32_t seed) {
  std::mt19937 random(seed);
  Mlp mlp;
  mlp.encoding_mean = {0, 0};
  mlp.encoding_scale = {1, 1};
  mlp.hardware_mean = {0};
  mlp.hardware_scale = {1};
  mlp.encoding_1 = RandomLayer(2, 6, random);
  mlp.encoding_2 = RandomLayer(6, 5, random);
  mlp.joint_1 = RandomLayer(6, 4, random);
  mlp.joint_2 = RandomLayer(4, 1, random);
  return mlp;
}

std::vector<MlpSample> Samples(uint32_t seed, int count, float shift) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<MlpSample> samples;
  for (int i = 0; i < count; ++i) {
    const float a = normal(random), b = normal(random), h = normal(random);
    samples.push_back({{a, b}, {h}, 0.5f * a - b + h + shift});
  }
  return samples;
}

// Mean of Huber's loss in units of the network's output (its scale is 1 here).
double Loss(const Mlp& mlp, const std::vector<MlpSample>& samples) {
  double sum = 0;
  for (const MlpSample& sample : samples) {
    const double off = std::abs(mlp.Evaluate(sample.encoding, sample.hardware) - sample.target);
    sum += off < kHuberCorner ? off * off / 2 / kHuberCorner : off - kHuberCorner / 2;
  }
  return sum / static_cast<double>(samples.size());
}

std::vector<float*> Parameters(Mlp& mlp) {
  std::vector<float*> all;
  for (LinearLayer* layer : {&mlp.encoding_1, &mlp.encoding_2, &mlp.joint_1, &mlp.joint_2}) {
    for (float& weight : layer->weights) all.push_back(&weight);
    for (float& bias : layer->bias) all.push_back(&bias);
  }
  return all;
}

// Adam's first step moves each parameter by the learning rate against its gradient's sign: so the
// step shows the sign of every gradient, which the finite difference of the loss must have too.
TEST(AdaptMlp, FollowsTheGradientOfTheLoss) {
  Mlp mlp = Small(3);
  const std::vector<MlpSample> samples = Samples(4, 7, 0.3f);
  MlpAdaptation options;
  options.steps = 1;
  options.learning_rate = 1e-3;
  Mlp adapted = *AdaptMlp(mlp, samples, {}, options);
  const std::vector<float*> before = Parameters(mlp), after = Parameters(adapted);
  int compared = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    constexpr float kStep = 1e-3f;
    const float value = *before[i];
    *before[i] = value + kStep;
    const double above = Loss(mlp, samples);
    *before[i] = value - kStep;
    const double below = Loss(mlp, samples);
    *before[i] = value;
    const double slope = (above - below) / (2 * double{kStep});
    if (std::abs(slope) < 1e-3) continue;  // rounding decides its sign
    ++compared;
    EXPECT_NEAR(*after[i] - value, slope > 0 ? -1e-3 : 1e-3, 1e-5) << "parameter " << i;
  }
  EXPECT_GT(compared, 40);
}

TEST(AdaptMlp, LearnsTheDeviceAndRehearsesTheOthers) {
  const std::vector<MlpSample> known = Samples(5, 200, 0);
  MlpAdaptation training;
  training.steps = 600;
  training.learning_rate = 1e-2;
  const Mlp mlp = *AdaptMlp(Small(6), known, {}, training);
  std::vector<MlpSample> device = Samples(7, 30, 0.7f);
  for (MlpSample& sample : device) {
    sample.target += 3 - sample.hardware[0];
    sample.hardware[0] = 3;  // told apart from the others
  }
  MlpAdaptation options;
  options.steps = 200;
  options.learning_rate = 1e-2;
  const Mlp adapted = *AdaptMlp(mlp, device, known, options);
  const Mlp alone = *AdaptMlp(mlp, device, {}, options);
  EXPECT_LT(Loss(adapted, device), Loss(mlp, device) / 2);
  EXPECT_LT(Loss(adapted, known), Loss(alone, known));
  // The same inputs, the same network; another seed rehearses other draws.
  EXPECT_EQ(*AdaptMlp(mlp, device, known, options), adapted);
  options.seed = 2;
  EXPECT_NE(*AdaptMlp(mlp, device, known, options), adapted);
}

TEST(AdaptMlp, RefusesWhatDoesNotFit) {
  const Mlp mlp = Small(8);
  std::vector<MlpSample> samples = Samples(9, 3, 0);
  EXPECT_EQ(*AdaptMlp(mlp, {}, samples, {}), mlp);
  samples[1].hardware.push_back(1);
  EXPECT_FALSE(AdaptMlp(mlp, samples, {}, {}).ok());
  EXPECT_FALSE(AdaptMlp(mlp, Samples(9, 3, 0), samples, {}).ok());
  samples = Samples(9, 3, 0);
  samples[2].target = std::nanf("");
  EXPECT_FALSE(AdaptMlp(mlp, samples, {}, {}).ok());
  samples = Samples(9, 3, 0);
  samples[2].encoding[0] = INFINITY;
  EXPECT_FALSE(AdaptMlp(mlp, samples, {}, {}).ok());
}

}  // namespace
}  // namespace runnel::adapt_mlp_test
