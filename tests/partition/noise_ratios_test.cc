// What codecs add to the noise where they stand: between measured places, and in the model of plans.

#include "partition/noise_ratios.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel::noise_ratios_test {
namespace {

TEST(NoiseRatios, LieBetweenThoseOfTheMeasuredPlaces) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, RandomPurpose::kTest, 1, 0);
    NoiseRatios ratios = {.all = 0.5};
    uint64_t next = 0;
    for (int layer = 0; layer < 20; ++layer) {
      if (random.Uniform(next++) < 0.3) ratios.forward[layer] = 0.01 + random.Uniform(next++);
    }
    if (ratios.forward.empty()) continue;
    for (int layer = 0; layer < 20; ++layer) {
      const double at = ratios.At(layer, Direction::kForward);
      const auto behind = ratios.forward.lower_bound(layer);
      const auto before = behind == ratios.forward.begin() ? behind : std::prev(behind);
      const double low = before->second,
                   high = behind == ratios.forward.end() ? low : behind->second;
      EXPECT_GE(at, std::min(low, high) - 1e-12);
      EXPECT_LE(at, std::max(low, high) + 1e-12);
      if (ratios.forward.count(layer) > 0) {
        EXPECT_EQ(at, ratios.forward.at(layer));
      }
      EXPECT_EQ(ratios.At(layer, Direction::kBackward), 0.5) << "nothing was measured";
    }
  }
}

TEST(NoiseRatios, AreTheNearestOnesBeyondTheEnds) {
  const NoiseRatios ratios = {.backward = {{2, 0.2}, {6, 0.6}}};
  EXPECT_EQ(ratios.At(0, Direction::kBackward), 0.2);
  EXPECT_DOUBLE_EQ(ratios.At(3, Direction::kBackward), 0.3);
  EXPECT_EQ(ratios.At(9, Direction::kBackward), 0.6);
  EXPECT_EQ(ratios.At(3, Direction::kForward), 1);
}

}  // namespace
}  // namespace runnel::noise_ratios_test
