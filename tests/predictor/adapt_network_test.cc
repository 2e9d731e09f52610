#include "predictor/networks/adapt_network.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/predictor/random_network.h"

namespace runnel::adapt_network_test {
namespace {

constexpr int kInputs = 3;

Mlp Small(uint32_t seed) {
  std::mt19937 random(seed);
  Mlp mlp;
  mlp.encoding_mean.assign(kInputs, 0);
  mlp.encoding_scale.assign(kInputs, 1);
  mlp.hardware_mean = {0};
  mlp.hardware_scale = {1};
  mlp.encoding_1 = RandomLayer(kInputs, 16, random);
  mlp.encoding_2 = RandomLayer(16, 16, random);
  mlp.joint_1 = RandomLayer(17, 16, random);
  mlp.joint_2 = RandomLayer(16, 1, random);
  return mlp;
}

PredictorNetwork Network() { return {"accept", "any", {Small(1), Small(2)}}; }

// What the network itself says, and `off(i)` more.
template <typename Off>
std::vector<MlpSample> Samples(uint32_t seed, int count, const Off& off) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  const PredictorNetwork network = Network();
  std::vector<MlpSample> samples;
  for (int i = 0; i < count; ++i) {
    MlpSample sample = {{normal(random), normal(random), normal(random)}, {0.5f}, 0};
    sample.target = static_cast<float>(network.Evaluate(sample.encoding, sample.hardware) + off(i));
    samples.push_back(std::move(sample));
  }
  return samples;
}

double Error(const PredictorNetwork& network, const std::vector<MlpSample>& samples) {
  double sum = 0;
  for (const MlpSample& sample : samples)
    sum += std::abs(network.Evaluate(sample.encoding, sample.hardware) - sample.target);
  return sum / static_cast<double>(samples.size());
}

MlpAdaptation Steps() {
  MlpAdaptation options;
  options.learning_rate = 1e-2;
  return options;
}

TEST(AdaptNetwork, LearnsWhatHoldsForTheWholeDevice) {
  const PredictorNetwork network = Network();
  const auto slower = [](int) { return 0.3; };
  const PredictorNetwork adapted =
      *AdaptIfItHelps(network, Samples(3, 14, slower), Samples(4, 50, slower), Steps());
  ASSERT_EQ(adapted.members.size(), 2u);
  EXPECT_LT(Error(adapted, Samples(5, 50, slower)), Error(network, Samples(5, 50, slower)) * 0.7);
}

// Samples that say nothing of other ranges would be learned by heart: on devices of noise alone no
// network errs more after adaptation than before, and one that is always adapted does.
TEST(AdaptNetwork, NeverHarms) {
  const PredictorNetwork network = Network();
  const auto exact = [](int) { return 0; };
  int kept = 0;
  double always = 0;
  for (uint32_t seed = 10; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const auto noise = [&](int) { return std::normal_distribution<double>(0, 0.3)(random); };
    const std::vector<MlpSample> fresh = Samples(seed, 12, noise);
    const PredictorNetwork adapted = *AdaptIfItHelps(network, fresh, {}, Steps());
    if (adapted == network) ++kept;
    PredictorNetwork forced = network;
    for (Mlp& member : forced.members) member = *AdaptMlp(member, fresh, {}, Steps());
    always += Error(forced, Samples(99, 50, exact)) / 10;
  }
  EXPECT_GE(kept, 9);
  EXPECT_GT(always, 0.1);  // the network itself errs by nothing on these
}

TEST(AdaptNetwork, ASampleAloneIsNotJudged) {
  const PredictorNetwork network = Network();
  const std::vector<MlpSample> one = Samples(6, 1, [](int) { return 1; });
  EXPECT_EQ(*AdaptIfItHelps(network, one, {}, Steps()), network);
  EXPECT_EQ(*AdaptIfItHelps(network, {}, {}, Steps()), network);
  std::vector<MlpSample> other = Samples(6, 4, [](int) { return 1; });
  other[2].hardware.clear();
  EXPECT_FALSE(AdaptIfItHelps(network, other, {}, Steps()).ok());
}

}  // namespace
}  // namespace runnel::adapt_network_test
