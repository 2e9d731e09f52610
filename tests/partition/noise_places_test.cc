// What of a codec's error reaches the gradients, by place: the zoo's networks, and what was measured of
// them.

#include "partition/noise_places.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"

namespace runnel::noise_places_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

struct Weights {
  std::vector<double> apart, alike, root;
};

Weights WeightsOf(const ModelSpec& model, Direction direction) {
  const std::vector<LayerInfo> infos = InferShapes(model, 2).value();
  const NoisePlaces places(model, infos);
  Weights weights;
  for (int layer = 0; layer + 1 < model.layer_count(); ++layer) {
    const NoiseWeights at = places.At(layer, direction);
    weights.apart.push_back(at.apart);
    weights.alike.push_back(at.alike);
    weights.root.push_back(at.root);
  }
  return weights;
}

Weights WeightsOf(const std::string& model, Direction direction) {
  return WeightsOf(MakeModel(model).value(), direction);
}

auto Near(double value) { return DoubleNear(value, 1e-9); }

// Layers: conv, pool (12 x 12), conv (8 x 8), pool (4 x 4, flattened), linear with ReLU, linear.
TEST(NoisePlaces, ErrorsOfGradientsAverageOverPositions) {
  EXPECT_THAT(WeightsOf("lenet", Direction::kBackward).apart,
              ElementsAre(Near(1.0 / 24), Near(1.0 / 12), Near(1.0 / 8), Near(1.0 / 4), Near(1)));
  EXPECT_THAT(WeightsOf("lenet", Direction::kBackward).root, ElementsAre(0, 0, 0, 0, 0));
  // Signals have one axis. Behind the second convolution 124 of 128 points, behind the pool 62.
  EXPECT_THAT(WeightsOf("har_cnn", Direction::kBackward).apart,
              ElementsAre(Near(1 / std::sqrt(126)), Near(1 / std::sqrt(124)),
                          Near(1 / std::sqrt(62)), Near(1)));
}

// The gradient of a mean over positions is the same at all of them.
TEST(NoisePlaces, ErrorsOfGradientsOfAMeanDoNotAverage) {
  EXPECT_THAT(WeightsOf("resnet8", Direction::kBackward).apart,
              ElementsAre(Near(1.0 / 32), Near(1.0 / 32), Near(1.0 / 16), Near(1)));
}

TEST(NoisePlaces, PositionsOfTokensAreSamples) {
  for (const Direction direction : kDirections) {
    const double apart = direction == Direction::kForward ? 2 : 1;
    for (const double weight : WeightsOf("transformer_tiny", direction).apart)
      EXPECT_EQ(weight, apart);
  }
}

TEST(NoisePlaces, ErrorsOfActivationsSwitchUnitsBehindThem) {
  const double root = kActivationNoise.root;
  EXPECT_THAT(WeightsOf("lenet", Direction::kForward).apart, ElementsAre(2, 2, 2, 2, 2));
  EXPECT_THAT(WeightsOf("lenet", Direction::kForward).root, ElementsAre(root, root, root, root, 0))
      << "behind the last ReLU all is linear";
  EXPECT_EQ(WeightsOf("transformer_tiny", Direction::kForward).root.back(), root) << "a norm";
}

TEST(NoisePlaces, NoGradientGoesToFrozenLayers) {
  ModelSpec model = MakeModel("lenet").value();
  for (int layer = 0; layer < 2; ++layer) model.layers[static_cast<size_t>(layer)].frozen = true;
  ASSERT_EQ(model.frozen_front(), 2);
  EXPECT_THAT(WeightsOf(model, Direction::kBackward).apart,
              ElementsAre(0, 0, Near(1.0 / 8), Near(1.0 / 4), Near(1)));
  EXPECT_EQ(WeightsOf(model, Direction::kForward).apart[0], 2);
}

TEST(NoisePlaces, WhereNothingIsKnownTheyAreTheMost) {
  for (const Direction direction : kDirections) {
    const NoiseWeights most = NoisePlaces().At(7, direction);
    EXPECT_EQ(most, direction == Direction::kForward ? kActivationNoise : kGradientNoise);
    for (const ModelRow& row : BuiltinModels()) {
      const Weights weights = WeightsOf(std::string(row.name), direction);
      for (const double apart : weights.apart) EXPECT_LE(apart, most.apart) << row.name;
      for (const double root : weights.root) EXPECT_LE(root, most.root) << row.name;
    }
  }
}

}  // namespace
}  // namespace runnel::noise_places_test
