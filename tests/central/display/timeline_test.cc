#include "central/display/timeline.h"

#include "gtest/gtest.h"

namespace runnel::timeline_test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(Timeline, CountsFromItsFirstPoint) {
  Timeline timeline;
  EXPECT_TRUE(timeline.Points().empty());
  timeline.Add(3, 10 * kSecond);
  timeline.Add(5, 12 * kSecond);
  const std::vector<TimelinePoint> points = timeline.Points();
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].batches, 3);
  EXPECT_EQ(points[0].seconds, 0);
  EXPECT_EQ(points[1].batches, 5);
  EXPECT_DOUBLE_EQ(points[1].seconds, 2);
}

TEST(Timeline, WhatDoesNotAscendIsLeftOut) {
  Timeline timeline;
  timeline.Add(1, kSecond);
  timeline.Add(1, 2 * kSecond);
  timeline.Add(2, kSecond);
  timeline.Add(0, 3 * kSecond);
  EXPECT_EQ(timeline.Points().size(), 1u);
}

TEST(Timeline, ALongRunStaysShortAndEven) {
  Timeline timeline;
  constexpr int64_t kBatches = 100'000;
  for (int64_t i = 1; i <= kBatches; ++i) timeline.Add(i, i * kSecond);
  const std::vector<TimelinePoint> points = timeline.Points();
  EXPECT_LE(points.size(), Timeline::kMaxPoints);
  EXPECT_GE(points.size(), Timeline::kMaxPoints / 2);
  const int64_t step = points[1].batches - points[0].batches;
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_EQ(points[i].batches - points[i - 1].batches, step);
    EXPECT_NEAR(points[i].seconds - points[i - 1].seconds, static_cast<double>(step), 1e-6);
  }
  EXPECT_GT(points.back().batches, kBatches - 2 * step);
}

}  // namespace
}  // namespace runnel::timeline_test
