#include "worker/stage/weight_average.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel::weight_average_test {
namespace {

TEST(WeightAverage, TheShareGrowsToTheDecay) {
  EXPECT_EQ(AverageShare(0.9, 0), 0) << "at first the weights themselves";
  EXPECT_FLOAT_EQ(AverageShare(0.9, 1), 0.1f);
  EXPECT_FLOAT_EQ(AverageShare(0.9, 9), 0.5f);
  EXPECT_EQ(AverageShare(0.9, 81), 0.9f);
  EXPECT_EQ(AverageShare(0.9, 1'000'000), 0.9f);
}

// Against the weighted sum over all steps, in double.
TEST(WeightAverage, IsTheWeightedSumOfAllSteps) {
  constexpr int64_t kElements = 33, kSteps = 60;
  std::vector<float> average(kElements, 7);  // what was there does not count
  std::vector<double> expected(kElements, 0);
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<float> weights(kElements);
    const CounterRandom random(1, RandomPurpose::kTest, 0, static_cast<uint64_t>(step));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = random.Uniform(i) - 0.5f;
    MoveAverage(AverageShare(0.8, step), weights.data(), kElements, average.data());
    double share = 1;  // of this step in the end
    for (int64_t later = step + 1; later < kSteps; ++later)
      share *= std::min(0.8, static_cast<double>(later) / static_cast<double>(later + 9));
    const double own = 1 - std::min(0.8, static_cast<double>(step) / static_cast<double>(step + 9));
    for (size_t i = 0; i < weights.size(); ++i) expected[i] += share * own * weights[i];
  }
  for (size_t i = 0; i < average.size(); ++i) EXPECT_NEAR(average[i], expected[i], 1e-6);
}

}  // namespace
}  // namespace runnel::weight_average_test
