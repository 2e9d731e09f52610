// What plans take links for, from what stages have measured.

#include "central/planning/measured/link_rates.h"

#include <cmath>

#include "gtest/gtest.h"

namespace runnel::link_rates_test {
namespace {

constexpr double kMbps = 125'000;  // bytes a second
constexpr LinkSpeed kNothingGiven = {LinkRate(), 0.002};
constexpr LinkSpeed kFiveGiven = {LinkRate::Mbps(5), 0.002};

std::vector<StageStatus> Stages(const std::vector<int>& devices) {
  std::vector<StageStatus> stages;
  for (int device : devices) stages.push_back({{{Seat{DeviceId(device)}}, 0, 0, 1}, "", {}});
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
  EXPECT_EQ(rates[0][2].rate, LinkRate::Mbps(4));
  EXPECT_EQ(rates[2][0].rate, LinkRate::Mbps(3));
  EXPECT_EQ(rates[2][1].rate, LinkRate::Mbps(2));
  EXPECT_FALSE(rates[1][2].rate.is_set());

  // The plan has changed, and new links have measured nothing yet: what was known stays.
  RecordLinkRates(Stages({0, 1, 2}), 3, rates);
  EXPECT_EQ(rates[0][2].rate, LinkRate::Mbps(4));
  EXPECT_EQ(ScaleRates(rates, 0.5)[0][2].rate, LinkRate::Mbps(2));
}

TEST(LinkRates, ByPositionOfThePlansDevices) {
  LinkRates rates;
  EXPECT_EQ(SpeedsOf(rates, {0, 1}, kFiveGiven)[1][0].rate.mbps(), 5);
  EXPECT_EQ(SpeedsOf(rates, {0, 1}, kNothingGiven)[1][0].rate.mbps(), 0);
  rates.assign(3, std::vector<WayFigures>(3));
  rates[0][2].rate = LinkRate::Mbps(4);
  const auto speeds = SpeedsOf(rates, {2, 0}, kFiveGiven);
  EXPECT_DOUBLE_EQ(speeds[1][0].rate.mbps(), 4);
  EXPECT_EQ(speeds[1][0].delay_seconds, 0.002);
}

// A bandwidth that the user gave is no reason to try one link after the other.
TEST(LinkRates, AWayThatNobodyTriedIsNoBetterThanGivenAndThanMeasuredNearIt) {
  LinkRates rates(3, std::vector<WayFigures>(3));
  rates[0][2] = {LinkRate::Mbps(4), 0.03};
  rates[2][1] = {LinkRate::Mbps(20), 0.001};
  const auto speeds = SpeedsOf(rates, {0, 1, 2}, kFiveGiven);
  EXPECT_EQ(speeds[2][0].rate.mbps(), 4) << "the way back";
  EXPECT_EQ(speeds[1][0].rate.mbps(), 4) << "to device 0 went 4";
  EXPECT_EQ(speeds[1][0].delay_seconds, 0.03);
  EXPECT_EQ(speeds[2][1].rate.mbps(), 20) << "measured";
  EXPECT_EQ(speeds[2][1].delay_seconds, 0.001);
  EXPECT_EQ(speeds[1][2].rate.mbps(), 5) << "no better than what was given";
  EXPECT_EQ(speeds[1][2].delay_seconds, 0.002);
}

TEST(LinkRates, ADelayIsHalfOfTheRoundTripWithoutThePingsOwnBytes) {
  LinkRates rates;
  std::vector<StageStatus> stages = Stages({0, 1});
  stages[0].telemetry.downstream_round_trip_ns = 24'000'000;
  RecordLinkRates(stages, 2, rates);
  EXPECT_NEAR(*rates[1][0].delay_seconds, 0.012, 1e-9);
  stages[1].telemetry.upstream_round_trip_ns = 20'000'000;
  RecordLinkRates(stages, 2, rates);
  EXPECT_NEAR(*rates[0][1].delay_seconds, 0.010, 1e-9) << "the smaller of both ends' figures";
  EXPECT_FALSE(rates[0][1].rate.is_set());
  stages[1].telemetry.upstream_bytes_per_second = 75'000;
  stages[0].telemetry.downstream_bytes_per_second = 75'000;
  RecordLinkRates(stages, 2, rates);
  EXPECT_NEAR(*rates[0][1].delay_seconds, 0.008, 1e-9) << "150 bytes each way take 4 ms";
}

TEST(LinkRates, PathsAreWaysBetweenCentralsHostAndAWorker) {
  std::vector<DeviceFacts> devices(3);
  EXPECT_TRUE(RatesOfPaths(devices, 0.1).empty()) << "all on central's host, or nothing measured";
  devices[0].is_local = true;
  devices[2].path = {{LinkRate::Mbps(12), 0.005}, {LinkRate::Mbps(3), 0.005}};
  const LinkRates rates = RatesOfPaths(devices, 0.1);
  EXPECT_EQ(rates[0][2].rate.mbps(), 12);
  EXPECT_EQ(rates[2][0].rate.mbps(), 3);
  EXPECT_DOUBLE_EQ(*rates[2][0].delay_seconds, 0.105) << "with what data links get on top";
  EXPECT_FALSE(rates[0][1].rate.is_set());
  EXPECT_FALSE(rates[0][1].delay_seconds.has_value());

  devices[1].is_local = true;
  const LinkRates locals = RatesOfPaths(devices, 0);
  EXPECT_EQ(locals[1][2].rate.mbps(), 12) << "the same path";
  EXPECT_GT(locals[0][1].rate.mbps(), 1000) << "within the host";
}

TEST(LinkRates, MediaAreSaid) {
  std::vector<DeviceFacts> devices = {{"c"}, {"pi-1"}, {"pi-2"}, {"phone"}};
  EXPECT_TRUE(MediaOf(devices).empty());
  devices[1].path = {{LinkRate::Mbps(9)}, {LinkRate::Mbps(9.6)}, 0, true};
  devices[2].path = {{LinkRate::Mbps(8)}, {LinkRate::Mbps(9)}, 0, true};
  devices[3].path = {{LinkRate::Mbps(2)}, {LinkRate::Mbps(2)}, 1, true};
  EXPECT_EQ(MediaText(MediaOf(devices), devices),
            "links of pi-1 and pi-2 share 9.6 Mbps, both ways together; the link of phone has 2 "
            "Mbps, both ways together");
}

// What is measured on a radio while others send is a share of it.
TEST(LinkRates, OnAMediumAMeasuredRateIsAShareOfIt) {
  std::vector<DeviceFacts> devices(3);
  devices[0].is_local = true;
  devices[1].path = {{LinkRate::Mbps(10)}, {LinkRate::Mbps(10)}, 0, true};
  devices[2].path = devices[1].path;
  LinkRates rates = RatesOfPaths(devices, 0);
  EXPECT_EQ(rates[0][1].medium, rates[2][0].medium);
  EXPECT_EQ(rates[1][2].medium, rates[0][1].medium) << "over the same radio";
  EXPECT_EQ(SpeedsOf(rates, {0, 2}, kNothingGiven)[1][0].medium, rates[0][1].medium);
  std::vector<StageStatus> stages = Stages({0, 1, 2});
  stages[1].telemetry.upstream_bytes_per_second = 4 * kMbps;
  RecordLinkRates(stages, 3, rates);
  EXPECT_EQ(rates[0][1].rate.mbps(), 10) << "four ways send there";
  stages[1].telemetry.upstream_bytes_per_second = 1 * kMbps;
  RecordLinkRates(stages, 3, rates);
  EXPECT_EQ(rates[0][1].rate.mbps(), 4) << "the radio is slower than it was";

  devices[1].path.half_duplex = devices[2].path.half_duplex = false;
  rates = RatesOfPaths(devices, 0);
  EXPECT_NE(rates[0][1].medium, rates[1][0].medium);
  EXPECT_EQ(rates[1][0].medium, rates[2][0].medium);
  EXPECT_EQ(rates[1][2].medium, -1) << "past what they share";
}

// A link that was slow once comes back while nobody uses it, and is tried again.
TEST(LinkRates, AnIdleWayComesBackToWhatWasKnownFirst) {
  LinkRates first(3, std::vector<WayFigures>(3));
  first[0][1].rate = LinkRate::Mbps(8);
  LinkRates rates = first;
  rates[0][1].rate = LinkRate::Mbps(0.5);
  rates[1][2].rate = LinkRate::Mbps(1);
  rates[0][2].rate = LinkRate::Mbps(2);
  std::vector<StageStatus> stages = Stages({0, 2});
  for (int i = 0; i < 10; ++i) ForgetIdleWays(stages, first, {}, rates);
  EXPECT_NEAR(rates[0][1].rate.mbps(), 3, 0.1) << "two thirds of the way";
  for (int i = 0; i < 40; ++i) ForgetIdleWays(stages, first, {}, rates);
  EXPECT_NEAR(rates[0][1].rate.mbps(), 8, 0.3);
  EXPECT_EQ(rates[0][2].rate.mbps(), 2) << "in use";
  EXPECT_GT(rates[1][2].rate.mbps(), 4) << "nothing was known first: the best near it";
  EXPECT_FALSE(rates[2][1].rate.is_set());
}

// Each time that a path was measured in vain, what is known of it is forgotten half as fast.
TEST(LinkRates, ARefusedPathIsForgottenMoreSlowly) {
  LinkRates first(3, std::vector<WayFigures>(3));
  first[0][1].rate = first[0][2].rate = LinkRate::Mbps(8);
  LinkRates rates = first;
  rates[0][1].rate = rates[0][2].rate = LinkRate::Mbps(0.5);
  std::vector<StageStatus> stages = Stages({0});
  ForgetIdleWays(stages, first, {0, 3, 0}, rates);
  EXPECT_NEAR(rates[0][1].rate.mbps(), 0.5 * std::pow(16, 0.1 / 8), 1e-9);
  EXPECT_NEAR(rates[0][2].rate.mbps(), 0.5 * std::pow(16, 0.1), 1e-9);
}

TEST(LinkRates, PathsMeasuredAtABarrierReplaceWhatWasKnown) {
  std::vector<DeviceFacts> devices(4);
  devices[0].is_local = devices[1].is_local = true;
  for (const int device : {2, 3}) {
    devices[device].path.down = {LinkRate::Mbps(20), 0.01};
    devices[device].path.up = {LinkRate::Mbps(10), 0.01};
  }
  LinkRates rates = RatesOfPaths(devices, 0);
  rates[0][3].rate = LinkRate::Mbps(7);
  devices[2].path.down = {LinkRate::Mbps(2), 0.03};
  devices[2].path.up = {LinkRate(), 0.03};
  RecordPaths(devices, {2}, 0.005, rates);
  for (const int local : {0, 1}) {
    EXPECT_EQ(rates[local][2].rate.mbps(), 2);
    EXPECT_EQ(rates[2][local].rate.mbps(), 10) << "nothing was measured of it";
    EXPECT_DOUBLE_EQ(*rates[2][local].delay_seconds, 0.035);
  }
  EXPECT_EQ(rates[0][3].rate.mbps(), 7) << "not measured again";
}

TEST(LinkRates, AWayThatNobodyTriedIsNoFastOne) {
  LinkRates rates(4, std::vector<WayFigures>(4));
  rates[0][1].rate = LinkRate::Mbps(8);
  rates[1][2].rate = LinkRate::Mbps(1);
  const auto speeds = SpeedsOf(rates, {0, 1, 2, 3}, kNothingGiven);
  EXPECT_DOUBLE_EQ(speeds[0][1].rate.mbps(), 8);
  EXPECT_DOUBLE_EQ(speeds[1][0].rate.mbps(), 8);  // the way back
  EXPECT_DOUBLE_EQ(speeds[0][2].rate.mbps(), 1);  // into device 2 goes 1
  EXPECT_DOUBLE_EQ(speeds[0][3].rate.mbps(), 8);  // from device 0 go 8
  EXPECT_DOUBLE_EQ(speeds[3][2].rate.mbps(), 1);
  // Nothing measured at either end.
  rates[1][2].rate = LinkRate();
  EXPECT_DOUBLE_EQ(SpeedsOf(rates, {0, 1, 2, 3}, kNothingGiven)[2][3].rate.mbps(), 8);
}

// ---- links by way of central

DeviceFacts Remote(int medium, double mbps) {
  DeviceFacts device;
  device.path = {{LinkRate::Mbps(mbps), 0.01}, {LinkRate::Mbps(mbps), 0.01}, medium, false};
  return device;
}

TEST(LinkRates, ARelayedLinkTakesThePathsOfCentral) {
  std::vector<DeviceFacts> devices = {
      {.is_local = true}, Remote(0, 10), Remote(0, 10), Remote(-1, 10)};
  std::vector<StageStatus> stages = Stages({0, 1, 2});
  LinkRates rates = RatesOfPaths(devices, 0);
  const LinkRates straight = rates;
  SetRelayedWays(stages, devices, rates);
  EXPECT_EQ(rates, straight) << "nothing is relayed";
  stages[1].relayed = stages[2].relayed = true;
  SetRelayedWays(stages, devices, rates);
  EXPECT_EQ(rates[1][2].medium, rates[0][2].medium) << "what leaves central";
  EXPECT_EQ(rates[2][1].medium, rates[0][1].medium);
  EXPECT_EQ(rates[0][1], straight[0][1]) << "a path of central's is what it was measured to be";
  EXPECT_EQ(SpeedsOf(rates, {0, 1, 2}, kNothingGiven)[1][2].medium, rates[0][2].medium);
  // It goes straight now.
  stages[2].relayed = false;
  SetRelayedWays(stages, devices, rates);
  EXPECT_EQ(rates[1][2].medium, -1);
  // Nobody can dial either.
  devices[2].is_dialable = devices[3].is_dialable = false;
  SetRelayedWays({}, devices, rates);
  EXPECT_EQ(rates[3][2].medium, rates[0][2].medium);
  EXPECT_EQ(rates[2][3].medium, rates[2][0].medium) << "only what comes in to central is shared";
  EXPECT_EQ(rates[1][3].medium, -1) << "one can be dialled: it shows";
}

TEST(LinkRates, WithoutProbesAllRelayedLinksShareCentral) {
  std::vector<DeviceFacts> devices = {{.is_local = true}, {}, {}, {}};
  LinkRates rates;
  SetRelayedWays({}, devices, rates);
  EXPECT_TRUE(rates.empty());
  for (int i = 1; i < 4; ++i) devices[static_cast<size_t>(i)].is_dialable = false;
  SetRelayedWays({}, devices, rates);
  EXPECT_GE(rates[1][2].medium, 0);
  EXPECT_EQ(rates[1][2].medium, rates[3][2].medium);
  EXPECT_EQ(rates[0][1].medium, -1);
  // Each at the end of a slow line of its own, central at a fast one.
  devices[1] = Remote(-1, 10);
  devices[2] = Remote(-1, 10);
  devices[1].is_dialable = devices[2].is_dialable = false;
  SetRelayedWays({}, devices, rates);
  EXPECT_EQ(rates[1][2].medium, -1);
}

// Phones at one access point reach each other over its air in any case.
TEST(LinkRates, ARadioStaysOne) {
  std::vector<DeviceFacts> devices = {{.is_local = true}, Remote(0, 10), Remote(0, 10)};
  for (int i = 1; i < 3; ++i) {
    devices[static_cast<size_t>(i)].path.half_duplex = true;
    devices[static_cast<size_t>(i)].is_dialable = false;
  }
  LinkRates rates = RatesOfPaths(devices, 0);
  const LinkRates before = rates;
  SetRelayedWays({}, devices, rates);
  EXPECT_EQ(rates, before);
}

}  // namespace
}  // namespace runnel::link_rates_test
