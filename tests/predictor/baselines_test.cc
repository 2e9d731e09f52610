#include "predictor/fit/baselines.h"

#include <vector>

#include "gtest/gtest.h"

namespace runnel::baselines_test {
namespace {

TEST(Baselines, FlopsLineThroughPointsOnALine) {
  const std::vector<double> macs = {1e6, 2e6, 5e6};
  const std::vector<double> seconds = {0.003, 0.004, 0.007};
  const FlopsLine line = FitFlopsLine(macs, seconds);
  EXPECT_NEAR(line.intercept, 0.002, 1e-9);
  EXPECT_NEAR(line.slope, 1e-9, 1e-15);
  EXPECT_NEAR(line.Seconds(10e6), 0.012, 1e-9);
}

TEST(Baselines, FlopsLineOfFewPoints) {
  EXPECT_DOUBLE_EQ(FitFlopsLine({2e6}, {0.004}).Seconds(1e6), 0.002);
  EXPECT_DOUBLE_EQ(FitFlopsLine({}, {}).Seconds(1e6), 0);
  // The same count twice: no slope but through the origin. A falling line is none either.
  EXPECT_GT(FitFlopsLine({1e6, 1e6}, {0.001, 0.002}).slope, 0);
  EXPECT_GT(FitFlopsLine({1e6, 2e6}, {0.002, 0.001}).slope, 0);
}

TEST(Baselines, SumAndRatio) {
  EXPECT_DOUBLE_EQ(SumOfLayers({1, 2, 4, 8}, {1, 2}), 6);
  EXPECT_DOUBLE_EQ(CapacityRatio({3, 5}, {1, 3}), 2);
  EXPECT_DOUBLE_EQ(CapacityRatio({}, {}), 1);
}

}  // namespace
}  // namespace runnel::baselines_test
