// What plans take links for, from what stages have measured.

#include "central/planning/link_rates.h"

#include "gtest/gtest.h"

namespace runnel {
namespace {

constexpr double kMbps = 125'000;  // bytes a second
constexpr LinkSpeed kNothingGiven = {0, 0.002};

std::vector<StageStatus> Stages(const std::vector<int>& devices) {
  std::vector<StageStatus> stages;
  for (int device : devices) stages.push_back({{DeviceId(device), 0, 0, 1}, "", {}});
  return stages;
}

TEST(LinkRates, EachDirectionIsWhatItsReceiverMeasured) {
  LinkRates rates;
  std::vector<StageStatus> stages = Stages({0, 2, 1});
  NoteLinkRates(stages, 3, rates);
  EXPECT_TRUE(rates.empty());
  stages[1].telemetry.upstream_bytes_per_second = 4 * kMbps;    // 0 -> 2
  stages[0].telemetry.downstream_bytes_per_second = 3 * kMbps;  // 2 -> 0
  stages[2].telemetry.upstream_bytes_per_second = 2 * kMbps;    // 2 -> 1
  NoteLinkRates(stages, 3, rates);
  EXPECT_EQ(rates[0][2], 4 * kMbps);
  EXPECT_EQ(rates[2][0], 3 * kMbps);
  EXPECT_EQ(rates[2][1], 2 * kMbps);
  EXPECT_EQ(rates[1][2], 0);

  // The plan has changed, and new links have measured nothing yet: what was known stays.
  NoteLinkRates(Stages({0, 1, 2}), 3, rates);
  EXPECT_EQ(rates[0][2], 4 * kMbps);
  EXPECT_EQ(Scaled(rates, 0.5)[0][2], 2 * kMbps);
}

TEST(LinkRates, ByPositionOfThePlansDevices) {
  LinkRates rates;
  EXPECT_EQ(SpeedsOf(rates, {0, 1}, {5, 0})[1][0].megabits_per_second, 5);
  EXPECT_EQ(SpeedsOf(rates, {0, 1}, kNothingGiven)[1][0].megabits_per_second, 0);
  rates.assign(3, std::vector<double>(3, 0));
  rates[0][2] = 4 * kMbps;
  const auto speeds = SpeedsOf(rates, {2, 0}, {5, 0.002});
  EXPECT_DOUBLE_EQ(speeds[1][0].megabits_per_second, 4);
  EXPECT_EQ(speeds[0][1].megabits_per_second, 5);  // not measured: what the user gave
  EXPECT_EQ(speeds[1][0].delay_seconds, 0.002);
}

TEST(LinkRates, AWayThatNobodyTriedIsNoFastOne) {
  LinkRates rates(4, std::vector<double>(4, 0));
  rates[0][1] = 8 * kMbps;
  rates[1][2] = 1 * kMbps;
  const auto speeds = SpeedsOf(rates, {0, 1, 2, 3}, kNothingGiven);
  EXPECT_DOUBLE_EQ(speeds[0][1].megabits_per_second, 8);
  EXPECT_DOUBLE_EQ(speeds[1][0].megabits_per_second, 8);  // the way back
  EXPECT_DOUBLE_EQ(speeds[0][2].megabits_per_second, 1);  // into device 2 goes 1
  EXPECT_DOUBLE_EQ(speeds[0][3].megabits_per_second, 8);  // from device 0 go 8
  EXPECT_DOUBLE_EQ(speeds[3][2].megabits_per_second, 1);
  // Nothing measured at either end.
  rates[1][2] = 0;
  EXPECT_DOUBLE_EQ(SpeedsOf(rates, {0, 1, 2, 3}, kNothingGiven)[2][3].megabits_per_second, 8);
}

}  // namespace
}  // namespace runnel
