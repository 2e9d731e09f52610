#include "central/data/batch_source.h"

#include <algorithm>

#include "central/data/memory_datasets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;

// Sample i is (i, -i) with label i mod 7.
data::SignalDataset Numbered(int64_t size) {
  std::vector<float> values;
  std::vector<uint8_t> labels;
  for (int64_t i = 0; i < size; ++i) {
    values.push_back(static_cast<float>(i));
    values.push_back(static_cast<float>(-i));
    labels.push_back(static_cast<uint8_t>(i % 7));
  }
  return data::SignalDataset(Shape{1, 2}, 7, values, labels);
}

TEST(EpochPermutation, IsAPermutationAndAFunctionOfSeedAndEpoch) {
  const std::vector<int64_t> order = EpochPermutation(1000, 42, 3);
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_EQ(order, EpochPermutation(1000, 42, 3));
  EXPECT_NE(order, EpochPermutation(1000, 42, 4));
  EXPECT_NE(order, EpochPermutation(1000, 43, 3));
  EXPECT_NE(order, sorted);
}

// Every run on record depends on this order.
TEST(EpochPermutation, Golden) {
  EXPECT_THAT(EpochPermutation(10, 1, 0), ElementsAre(7, 3, 9, 0, 8, 4, 1, 5, 6, 2));
  EXPECT_THAT(EpochPermutation(10, 1, 1), ElementsAre(5, 0, 3, 9, 8, 6, 4, 2, 7, 1));
}

// Over 6000 permutations of 4 every first and every last element is about equally frequent.
TEST(EpochPermutation, FavoursNobody) {
  int64_t counts[4][4] = {};
  for (int64_t epoch = 0; epoch < 6000; ++epoch) {
    const std::vector<int64_t> order = EpochPermutation(4, 9, epoch);
    for (int place = 0; place < 4; ++place) ++counts[place][order[place]];
  }
  for (const auto& row : counts) {
    for (int64_t count : row) EXPECT_NEAR(count, 1500, 150);  // 4.5 standard deviations
  }
}

TEST(BatchSource, AnEpochVisitsEverySampleOnce) {
  const data::SignalDataset dataset = Numbered(103);
  const auto batching = Batching::Create(103, 16, 3, 1);
  ASSERT_TRUE(batching.ok());
  BatchSource source(dataset, 7);
  const std::vector<int64_t> order = EpochPermutation(103, 7, 1);
  std::vector<int64_t> visited;
  const int64_t per_epoch = batching->sequences_per_epoch();
  for (int64_t s = per_epoch; s < 2 * per_epoch; ++s) {
    const MicroBatch place = batching->Locate(Sequence(s));
    std::vector<float> x(place.samples * 2);
    std::vector<int32_t> y(place.samples);
    source.Fill(place, absl::MakeSpan(x), absl::MakeSpan(y));
    for (int64_t i = 0; i < place.samples; ++i) {
      visited.push_back(static_cast<int64_t>(x[2 * i]));
      EXPECT_EQ(x[2 * i + 1], -x[2 * i]);
      EXPECT_EQ(y[i], visited.back() % 7);
    }
  }
  EXPECT_EQ(visited, order);
}

TEST(BatchSource, FillsAgainInAnyOrder) {
  const data::SignalDataset dataset = Numbered(50);
  const auto batching = Batching::Create(50, 8, 2, 1);
  ASSERT_TRUE(batching.ok());
  BatchSource forward(dataset, 7);
  BatchSource jumping(dataset, 7);
  for (int64_t s : {0, 40, 3, 90, 41, 0}) {
    const MicroBatch place = batching->Locate(Sequence(s));
    std::vector<float> a(place.samples * 2);
    std::vector<float> b(place.samples * 2);
    std::vector<int32_t> labels(place.samples);
    jumping.Fill(place, absl::MakeSpan(a), {});
    BatchSource fresh(dataset, 7);
    fresh.Fill(place, absl::MakeSpan(b), absl::MakeSpan(labels));
    EXPECT_EQ(a, b);
    std::vector<int32_t> only(place.samples);
    forward.Fill(place, {}, absl::MakeSpan(only));
    EXPECT_EQ(only, labels);
  }
}

TEST(BatchSource, TestsInTheDataSetsOrder) {
  const data::SignalDataset dataset = Numbered(20);
  const BatchSource source(dataset, 7);
  std::vector<float> x(6);
  std::vector<int32_t> y(3);
  source.FillTest(13, 3, absl::MakeSpan(x), absl::MakeSpan(y));
  EXPECT_THAT(x, ElementsAre(13, -13, 14, -14, 15, -15));
  EXPECT_THAT(y, ElementsAre(6, 0, 1));
}

}  // namespace
}  // namespace runnel
