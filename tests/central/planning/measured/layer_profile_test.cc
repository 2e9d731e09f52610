// What layers take within a stage.

#include "central/planning/measured/layer_profile.h"

#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/plan/layer_range.h"

namespace runnel::layer_profile_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(LayerProfile, PartsHaveAsManyInFlightAsTheirStages) {
  EXPECT_EQ(InFlightOf({0, 2}, 5, 3), 3);
  EXPECT_EQ(InFlightOf({1, 1}, 5, 3), 2);
  EXPECT_EQ(InFlightOf({2, 3}, 5, 3), 1);
  EXPECT_EQ(InFlightOf({0, 4}, 5, 3), 1);  // a stage by itself
  EXPECT_EQ(InFlightOf({0, 0}, 40, 30), 8);
  for (int layers = 7; layers < 30; ++layers) {
    for (int devices = 1; devices < layers; ++devices) {
      int64_t left = devices;
      for (const LayerRange& part : PartsOf(layers, devices))
        EXPECT_EQ(InFlightOf(part, layers, devices), std::min<int64_t>(left--, 8));
    }
  }
}

TEST(LayerProfile, PartsAreTheModelOrAllThereIs) {
  EXPECT_EQ(EachLayer(3), (std::vector<LayerRange>{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_EQ(PartsOf(7, 2), (std::vector<LayerRange>{{0, 2}, {3, 6}}));
  EXPECT_EQ(PartsOf(3, 1), (std::vector<LayerRange>{{0, 2}}));
  EXPECT_EQ(PartsOf(6, 5), AllRanges(6));
  EXPECT_TRUE(PartsOf(3, 3).empty());
  EXPECT_TRUE(PartsOf(3, 8).empty());
  for (int layers = 7; layers < 30; ++layers) {
    for (int devices = 1; devices < layers; ++devices) {
      int next = 0;
      for (const LayerRange& range : PartsOf(layers, devices)) {
        EXPECT_EQ(range.first_layer, next);
        EXPECT_GE(range.last_layer, range.first_layer);
        next = range.last_layer + 1;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(LayerProfile, LayersTakeTogetherWhatTheirPartTook) {
  const std::vector<LayerRange> kHalves = {{0, 1}, {2, 3}};
  EXPECT_THAT(LayersWithinParts({1, 3, 2, 2}, kHalves, {8, 3}),
              ElementsAre(DoubleEq(2), DoubleEq(6), DoubleEq(1.5), DoubleEq(1.5)));
  // Nothing to scale, or by.
  EXPECT_THAT(LayersWithinParts({0, 0, 2, 2}, kHalves, {8, 0}), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(LayersWithinParts({5, 6}, {}, {}), ElementsAre(5, 6));
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> draw(0.001, 1);
    const auto some = [&](size_t size) {
      std::vector<double> seconds(size);
      for (double& one : seconds) one = draw(random);
      return seconds;
    };
    const int layers = 7 + static_cast<int>(seed % 20);
    const std::vector<LayerRange> parts = PartsOf(layers, 1 + static_cast<int>(seed % 3));
    const std::vector<double> part_seconds = some(parts.size());
    const std::vector<double> scaled =
        LayersWithinParts(some(static_cast<size_t>(layers)), parts, part_seconds);
    ASSERT_EQ(scaled.size(), static_cast<size_t>(layers));
    for (size_t i = 0; i < parts.size(); ++i) {
      const double sum = std::accumulate(scaled.begin() + parts[i].first_layer,
                                         scaled.begin() + parts[i].last_layer + 1, 0.0);
      EXPECT_NEAR(sum, part_seconds[i], 1e-12);
    }
  }
}

}  // namespace
}  // namespace runnel::layer_profile_test
