// What layers take within a stage.

#include "central/layer_profile.h"

#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(LayerProfile, PartsHaveAsManyInFlightAsTheirStages) {
  EXPECT_THAT(InFlightOfParts(5, 3), ElementsAre(1, 1, 1, 1, 1, 3, 2, 1));
  EXPECT_THAT(InFlightOfParts(3, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(InFlightOfParts(11, 10),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 8, 8, 7, 6, 5, 4, 3, 2, 1));
  for (int layers = 1; layers < 30; ++layers) {
    for (int parts = 1; parts < 40; ++parts)
      EXPECT_EQ(InFlightOfParts(layers, parts).size(), LayersAndParts(layers, parts).size());
  }
}

TEST(LayerProfile, LayersThenPartsThatAreTheModel) {
  EXPECT_EQ(LayersAndParts(5, 2),
            (std::vector<LayerRange>{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {0, 1}, {2, 4}}));
  EXPECT_EQ(LayersAndParts(3, 1).back(), (LayerRange{0, 2}));
  EXPECT_EQ(LayersAndParts(3, 3).size(), 3u);
  EXPECT_EQ(LayersAndParts(3, 8).size(), 3u);
  for (int layers = 1; layers < 30; ++layers) {
    for (int parts = 1; parts < layers; ++parts) {
      const std::vector<LayerRange> ranges = LayersAndParts(layers, parts);
      ASSERT_EQ(ranges.size(), static_cast<size_t>(layers + parts));
      int next = 0;
      for (int part = 0; part < parts; ++part) {
        const LayerRange& range = ranges[static_cast<size_t>(layers + part)];
        EXPECT_EQ(range.first_layer, next);
        EXPECT_GE(range.last_layer, range.first_layer);
        next = range.last_layer + 1;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(LayerProfile, LayersTakeTogetherWhatTheirPartTook) {
  const std::vector<LayerRange> ranges = LayersAndParts(4, 2);
  EXPECT_THAT(LayersWithinParts(ranges, {1, 3, 2, 2, 8, 3}),
              ElementsAre(DoubleEq(2), DoubleEq(6), DoubleEq(1.5), DoubleEq(1.5)));
  // Nothing to scale, or by.
  EXPECT_THAT(LayersWithinParts(ranges, {0, 0, 2, 2, 8, 0}), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(LayersWithinParts(LayersAndParts(2, 2), {5, 6}), ElementsAre(5, 6));
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> draw(0.001, 1);
    const int layers = 2 + static_cast<int>(seed % 20);
    const std::vector<LayerRange> all = LayersAndParts(layers, 1 + static_cast<int>(seed % 3));
    std::vector<double> seconds;
    for (size_t i = 0; i < all.size(); ++i) seconds.push_back(draw(random));
    const std::vector<double> scaled = LayersWithinParts(all, seconds);
    ASSERT_EQ(scaled.size(), static_cast<size_t>(layers));
    for (size_t i = static_cast<size_t>(layers); i < all.size(); ++i) {
      const double sum = std::accumulate(scaled.begin() + all[i].first_layer,
                                         scaled.begin() + all[i].last_layer + 1, 0.0);
      EXPECT_NEAR(sum, seconds[i], 1e-12);
    }
  }
}

}  // namespace
}  // namespace runnel
