#include "predictor/cost/range_cost.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

TEST(RangeCost, EveryRangeHasItsPlace) {
  for (int layers = 1; layers <= 24; ++layers) {
    const std::vector<LayerRange> ranges = AllRanges(layers);
    ASSERT_EQ(ranges.size(), RangeCount(layers));
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(RangeIndex(layers, ranges[i]), i) << layers;
      EXPECT_TRUE(i == 0 || ranges[i - 1] < ranges[i]);
    }
  }
}

TEST(RangeCost, GivesBackWhatItWasGiven) {
  const int layers = 5;
  std::vector<std::vector<double>> rows(2);
  for (const LayerRange& range : AllRanges(layers)) {
    for (int device = 0; device < 2; ++device)
      rows[device].push_back(device * 1000 + range.first_layer * 10 + range.last_layer);
  }
  const absl::StatusOr<RangeCost> cost = RangeCost::Create(rows, layers);
  ASSERT_TRUE(cost.ok()) << cost.status();
  for (int first = 0; first < layers; ++first) {
    for (int last = first; last < layers; ++last)
      EXPECT_EQ(cost->StageSeconds(1, first, last), 1000 + first * 10 + last);
  }
  for (const auto& [device, first, last] : std::vector<std::tuple<int, int, int>>{
           {-1, 0, 0}, {2, 0, 0}, {0, -1, 0}, {0, 2, 1}, {0, 0, 5}})
    EXPECT_TRUE(std::isnan(cost->StageSeconds(device, first, last)));
}

TEST(RangeCost, RowsAreByRangeOrByLayer) {
  EXPECT_EQ(SecondsOf({1, 2, 4, 8}, 4, {1, 3}), 14);
  EXPECT_EQ(SecondsOf({1, 2, 4, 8}, 4, {2, 2}), 4);
  EXPECT_EQ(SecondsOf({5}, 1, {0, 0}), 5);
  std::vector<double> row(RangeCount(4));
  row[RangeIndex(4, {1, 3})] = 13;
  EXPECT_EQ(SecondsOf(row, 4, {1, 3}), 13);
}

TEST(RangeCost, RefusesWhatIsNoTable) {
  EXPECT_FALSE(RangeCost::Create({}, 3).ok());
  EXPECT_FALSE(RangeCost::Create({{1.0}}, 0).ok());
  EXPECT_THAT(std::string(RangeCost::Create({{1, 1, 1}, {1, 1}}, 2).status().message()),
              HasSubstr("device 1 has 2, 2 layers have 3"));
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(RangeCost::Create({{1, bad, 1}}, 2).ok()) << bad;
}

}  // namespace
}  // namespace runnel
