// What plans take links for, from what stages have measured.

#include "central/planning/link_rates.h"

#include "gtest/gtest.h"

namespace runnel {
namespace {

constexpr double kMbps = 125'000;  // bytes a second
constexpr LinkSpeed kNothingGiven = {LinkRate(), 0.002};
constexpr LinkSpeed kFiveGiven = {LinkRate::Mbps(5), 0.002};

std::vector<StageStatus> Stages(const std::vector<int>& devices) {
  std::vector<StageStatus> stages;
  for (int device : devices) stages.push_back({{DeviceId(device), 0, 0, 1}, "", {}});
  return stages;
}

TEST(LinkRates, EachDirectionIsWhatItsReceiverMeasured) {
  LinkRates rates;
  std::vector<StageStatus> stages = Stages({0, 2, 1});
  RecordLinkRates(stages, 3, rates);
  EXPECT_TRUE(rates.empty());
  stages[1].telemetry.upstream_bytes_per_second = 4 * kMbps;    // 0 -> 2
  stages[0].telemetry.downstream_bytes_per_second = 3 * kMbps;  // 2 -> 0
  stages[2].telemetry.upstream_bytes_per_second = 2 * kMbps;    // 2 -> 1
  RecordLinkRates(stages, 3, rates);
  EXPECT_EQ(rates[0][2], LinkRate::Mbps(4));
  EXPECT_EQ(rates[2][0], LinkRate::Mbps(3));
  EXPECT_EQ(rates[2][1], LinkRate::Mbps(2));
  EXPECT_FALSE(rates[1][2].is_set());

  // The plan has changed, and new links have measured nothing yet: what was known stays.
  RecordLinkRates(Stages({0, 1, 2}), 3, rates);
  EXPECT_EQ(rates[0][2], LinkRate::Mbps(4));
  EXPECT_EQ(ScaleRates(rates, 0.5)[0][2], LinkRate::Mbps(2));
}

TEST(LinkRates, ByPositionOfThePlansDevices) {
  LinkRates rates;
  EXPECT_EQ(SpeedsOf(rates, {0, 1}, kFiveGiven)[1][0].rate.mbps(), 5);
  EXPECT_EQ(SpeedsOf(rates, {0, 1}, kNothingGiven)[1][0].rate.mbps(), 0);
  rates.assign(3, std::vector<LinkRate>(3));
  rates[0][2] = LinkRate::Mbps(4);
  const auto speeds = SpeedsOf(rates, {2, 0}, kFiveGiven);
  EXPECT_DOUBLE_EQ(speeds[1][0].rate.mbps(), 4);
  EXPECT_EQ(speeds[0][1].rate.mbps(), 5);  // not measured: what the user gave
  EXPECT_EQ(speeds[1][0].delay_seconds, 0.002);
}

TEST(LinkRates, PathsAreWaysBetweenCentralsHostAndAWorker) {
  std::vector<DeviceFacts> devices(3);
  EXPECT_TRUE(RatesOfPaths(devices).empty()) << "all on central's host, or nothing measured";
  devices[2].path = {LinkRate::Mbps(12), LinkRate::Mbps(3)};
  const LinkRates rates = RatesOfPaths(devices);
  EXPECT_EQ(rates[0][2].mbps(), 12);
  EXPECT_EQ(rates[2][0].mbps(), 3);
  EXPECT_FALSE(rates[0][1].is_set());
}

TEST(LinkRates, AWayThatNobodyTriedIsNoFastOne) {
  LinkRates rates(4, std::vector<LinkRate>(4));
  rates[0][1] = LinkRate::Mbps(8);
  rates[1][2] = LinkRate::Mbps(1);
  const auto speeds = SpeedsOf(rates, {0, 1, 2, 3}, kNothingGiven);
  EXPECT_DOUBLE_EQ(speeds[0][1].rate.mbps(), 8);
  EXPECT_DOUBLE_EQ(speeds[1][0].rate.mbps(), 8);  // the way back
  EXPECT_DOUBLE_EQ(speeds[0][2].rate.mbps(), 1);  // into device 2 goes 1
  EXPECT_DOUBLE_EQ(speeds[0][3].rate.mbps(), 8);  // from device 0 go 8
  EXPECT_DOUBLE_EQ(speeds[3][2].rate.mbps(), 1);
  // Nothing measured at either end.
  rates[1][2] = LinkRate();
  EXPECT_DOUBLE_EQ(SpeedsOf(rates, {0, 1, 2, 3}, kNothingGiven)[2][3].rate.mbps(), 8);
}

}  // namespace
}  // namespace runnel
