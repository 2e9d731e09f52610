#include "proto/base/plan/device_times.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::device_times_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayerRange, EveryRangeHasItsPlace) {
  for (int layers = 1; layers <= 24; ++layers) {
    const std::vector<LayerRange> ranges = AllRanges(layers);
    ASSERT_EQ(ranges.size(), RangeCount(layers));
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(RangeIndex(layers, ranges[i]), i) << layers;
      EXPECT_TRUE(i == 0 || ranges[i - 1] < ranges[i]);
    }
  }
}

TEST(DeviceTimes, ByLayerARangeTakesTheSumOfItsLayers) {
  const DeviceTimes times = DeviceTimes::ByLayer({1, 2, 4, 8});
  EXPECT_FALSE(times.by_range());
  EXPECT_EQ(times.layers(), 4);
  EXPECT_EQ(times.Seconds({1, 3}), 14);
  EXPECT_EQ(times.Seconds({2, 2}), 4);
  EXPECT_EQ(times.Sum(), 15);
  EXPECT_EQ(times.Scaled(2), DeviceTimes::ByLayer({2, 4, 8, 16}));
  EXPECT_EQ(times.LayerSeconds(), times.figures());
}

TEST(DeviceTimes, ByRangeEachRangeHasAFigureOfItsOwn) {
  const DeviceTimes times = DeviceTimes::ByRange(3, {1, 10, 100, 2, 20, 3});
  EXPECT_TRUE(times.by_range());
  EXPECT_EQ(times.Seconds({0, 2}), 100);
  EXPECT_EQ(times.Seconds({1, 2}), 20);
  EXPECT_THAT(times.LayerSeconds(), ElementsAre(1, 2, 3));
  EXPECT_EQ(times.Scaled(0.5).Seconds({0, 1}), 5);
}

TEST(DeviceTimes, AModelOfOneLayerMayBeEither) {
  EXPECT_EQ(DeviceTimes::ByLayer({5}).Seconds({0, 0}), 5);
  EXPECT_EQ(DeviceTimes::ByRange(1, {5}).Seconds({0, 0}), 5);
}

TEST(DeviceTimes, TheNumberOfRangesTellsTheNumberOfLayers) {
  for (int layers = 1; layers <= 200; ++layers) {
    const auto times = DeviceTimes::ByRange(std::vector<double>(RangeCount(layers)));
    ASSERT_TRUE(times.has_value());
    EXPECT_EQ(times->layers(), layers);
    if (layers == 1) continue;
    EXPECT_FALSE(DeviceTimes::ByRange(std::vector<double>(RangeCount(layers) + 1)).has_value());
  }
}

TEST(DeviceTimes, RangesThatAreNotThereTakeNoTime) {
  for (const DeviceTimes& times :
       {DeviceTimes(), DeviceTimes::ByLayer({1, 2}), DeviceTimes::ByRange(2, {1, 3, 2})}) {
    for (const LayerRange& range : {LayerRange{-1, 0}, LayerRange{1, 0}, LayerRange{0, 2}})
      EXPECT_TRUE(std::isnan(times.Seconds(range)));
  }
}

TEST(DeviceTimes, OnlyTimesPassTheCheck) {
  EXPECT_TRUE(DeviceTimes().Check().ok());
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(std::string(DeviceTimes::ByLayer({1, bad}).Check().message()),
                HasSubstr("layer 1"));
    EXPECT_THAT(std::string(DeviceTimes::ByRange(2, {1, 2, bad}).Check().message()),
                HasSubstr("range 2"));
  }
}

}  // namespace
}  // namespace runnel::device_times_test
