#include "worker/stage/state/weight_average.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/training/weight_average.h"

namespace runnel::weight_average_test {
namespace {

float EmaShare(double decay, int64_t step) {
  TrainingSettings settings;
  settings.ema = decay;
  return AverageOf(settings)->share(settings, step);
}

TEST(WeightAverage, TheShareGrowsToTheDecay) {
  EXPECT_EQ(EmaShare(0.9, 0), 0) << "at first the weights themselves";
  EXPECT_FLOAT_EQ(EmaShare(0.9, 1), 0.1f);
  EXPECT_FLOAT_EQ(EmaShare(0.9, 9), 0.5f);
  EXPECT_EQ(EmaShare(0.9, 81), 0.9f);
  EXPECT_EQ(EmaShare(0.9, 1'000'000), 0.9f);
}

TEST(WeightAverage, RowsAreOffAndTurnOff) {
  TrainingSettings settings;
  EXPECT_EQ(AverageOf(settings), nullptr);
  settings.ema = 0.5;
  EXPECT_EQ(AverageOf(settings)->flag, "ema");
  settings.ema = 0;
  settings.swa = "3@2";
  EXPECT_EQ(AverageOf(settings)->flag, "swa");
  DropAverage(settings);
  EXPECT_EQ(settings, TrainingSettings());
}

TEST(WeightAverage, SwaIsTheMeanOfEachEverythStepFromStartOn) {
  TrainingSettings settings;
  settings.swa = "4@3";
  const WeightAverage* swa = AverageOf(settings);
  float average = 7;
  const auto step_to = [&](int64_t step) {
    const float weight = static_cast<float>(step * step);
    const float share = swa->share(settings, step);
    if (share < 1) MoveAverage(share, &weight, 1, &average);
    return average;
  };
  for (int64_t step = 0; step < 4; ++step)
    EXPECT_EQ(step_to(step), static_cast<float>(step * step)) << "the weights until it begins";
  EXPECT_EQ(step_to(4), 16);
  EXPECT_EQ(step_to(5), 16);
  EXPECT_EQ(step_to(6), 16);
  EXPECT_FLOAT_EQ(step_to(7), (16 + 49) / 2.0f);
  EXPECT_FLOAT_EQ(step_to(8), (16 + 49) / 2.0f);
  step_to(9);
  EXPECT_FLOAT_EQ(step_to(10), (16 + 49 + 100) / 3.0f);
}

TEST(WeightAverage, SwaRefusesWhatIsNoStep) {
  EXPECT_FALSE(ParseSwa("off")->is_on);
  EXPECT_TRUE(ParseSwa("0")->is_on);
  for (const char* text : {"", "on", "-1", "3@0", "3@", "@2", "1.5", "3@2@1", "2000000000"})
    EXPECT_FALSE(ParseSwa(text).ok()) << text;
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
    MoveAverage(EmaShare(0.8, step), weights.data(), kElements, average.data());
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
