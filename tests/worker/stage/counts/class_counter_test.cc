#include "worker/stage/counts/class_counter.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/training/mixed_label.h"

namespace runnel::class_counter_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ClassCounter, HandCounted) {
  const std::vector<float> outputs = {1, 2, 0,  // class 1
                                      5, 5, 1,  // of equal ones the first: class 0
                                      0, 0, 1};
  ClassCounts counts = CountClasses(outputs, 3, std::vector<int32_t>{1, 1, 0});
  EXPECT_THAT(counts.confusion, ElementsAre(0, 0, 1, 1, 1, 0, 0, 0, 0));
  EXPECT_EQ(counts.labels, 3);
  EXPECT_EQ(counts.among_five, 3) << "of three";
  ClassCounts sum;
  sum.Add(counts);
  sum.Add(counts);
  EXPECT_EQ(sum.labels, 6);
  EXPECT_THAT(sum.confusion, ElementsAre(0, 0, 2, 2, 2, 0, 0, 0, 0));
}

// Frames of an evaluation may bring any label that the loss takes.
TEST(ClassCounter, AMixedLabelIsItsLargerClass) {
  const std::vector<int32_t> labels = {PackLabel({.first = 0, .second = 2, .parts = 100}),
                                       PackLabel({.first = 1, .second = 0, .parts = 400})};
  const ClassCounts counts = CountClasses(std::vector<float>{0, 0, 1, 0, 1, 0}, 3, labels);
  EXPECT_THAT(counts.confusion, ElementsAre(0, 0, 0, 0, 1, 0, 0, 0, 1));
}

// Against a stable sort of the outputs.
TEST(ClassCounter, AmongFiveIsWhatASortSays) {
  const CounterRandom random(1, RandomPurpose::kTest, 0, 0);
  for (const int64_t classes : {7, 128, 129}) {
    std::vector<float> outputs(static_cast<size_t>(50 * classes));
    std::vector<int32_t> labels;
    for (size_t i = 0; i < outputs.size(); ++i)
      outputs[i] = static_cast<float>(random.Below(i, 20));  // many are equal
    int64_t expected = 0;
    for (int64_t n = 0; n < 50; ++n) {
      labels.push_back(static_cast<int32_t>((n * 3) % classes));
      const float* row = outputs.data() + n * classes;
      std::vector<int32_t> order(static_cast<size_t>(classes));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [row](int32_t a, int32_t b) { return row[a] > row[b]; });
      expected += std::find(order.begin(), order.begin() + 5, labels.back()) != order.begin() + 5;
    }
    const ClassCounts counts = CountClasses(outputs, classes, labels);
    EXPECT_EQ(counts.among_five, expected);
    EXPECT_GT(expected, 0);
    if (classes > kMostConfusedClasses) {
      EXPECT_THAT(counts.confusion, IsEmpty());
    } else {
      EXPECT_EQ(std::accumulate(counts.confusion.begin(), counts.confusion.end(), int64_t{0}), 50);
    }
  }
}

}  // namespace
}  // namespace runnel::class_counter_test
