#include "central/data/validation_split.h"

#include <map>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::validation_split_test {
namespace {

using ::testing::HasSubstr;

// Sample i is the number i; two labels a sample: 2 i and 2 i + 1, else i % 3.
class Numbers final : public Dataset {
 public:
  Numbers(int64_t size, int64_t labels) : size_(size), labels_(labels) {}
  int64_t size() const override { return size_; }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return labels_ > 1 ? 2 * size_ : 3; }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    out[0] = static_cast<float>(index);
  }
  int64_t labels_per_sample() const override { return labels_; }
  int32_t label(int64_t index) const override {
    return static_cast<int32_t>(labels_ > 1 ? index : index % 3);
  }

 private:
  const Shape shape_ = {1};
  const int64_t size_, labels_;
};

DatasetSplits Splits(int64_t size, int64_t labels = 1) {
  DatasetSplits splits;
  splits.train = std::make_unique<Numbers>(size, labels);
  splits.test = std::make_unique<Numbers>(6, labels);
  return splits;
}

std::set<int64_t> SamplesOf(const Dataset& data) {
  std::set<int64_t> samples;
  for (int64_t i = 0; i < data.size(); ++i) {
    float value = 0;
    data.CopySample(i, absl::MakeSpan(&value, 1));
    EXPECT_TRUE(samples.insert(static_cast<int64_t>(value)).second);
    const int64_t each = data.labels_per_sample();
    for (int64_t k = 0; k < each; ++k) {
      const auto sample = static_cast<int64_t>(value);
      EXPECT_EQ(data.label(i * each + k), each > 1 ? sample * each + k : sample % 3);
    }
  }
  return samples;
}

TEST(ValidationSplit, EachSampleIsOnOneSideAndClassesKeepTheirShares) {
  const auto split = HoldBackValidation(Splits(90), 0.2, 7);
  ASSERT_TRUE(split.ok()) << split.status();
  std::set<int64_t> train = SamplesOf(*split->train), held = SamplesOf(*split->validation);
  EXPECT_EQ(held.size(), 18u);
  std::map<int64_t, int> classes;
  for (const int64_t sample : held) ++classes[sample % 3];
  EXPECT_THAT(classes, testing::Each(testing::Pair(testing::_, 6)));
  train.merge(held);
  EXPECT_EQ(train.size(), 90u);
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(split->test->size(), 6);
}

TEST(ValidationSplit, TheSeedDrawsIt) {
  const auto held = [](uint64_t seed) {
    return SamplesOf(*HoldBackValidation(Splits(90), 0.2, seed)->validation);
  };
  EXPECT_EQ(held(7), held(7));
  EXPECT_NE(held(7), held(8));
}

TEST(ValidationSplit, LabelsOfASampleStayWithIt) {
  const auto split = HoldBackValidation(Splits(50, 2), 0.1, 1);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(SamplesOf(*split->validation).size(), 5u);
  EXPECT_EQ(SamplesOf(*split->train).size(), 45u);
}

TEST(ValidationSplit, NothingOnOneSideIsOneLine) {
  const auto error = [](double share) {
    return std::string(HoldBackValidation(Splits(9), share, 1).status().message());
  };
  EXPECT_THAT(error(0.1), HasSubstr("of 9 training samples that leaves none to choose by"));
  EXPECT_THAT(error(0.9), HasSubstr("of 9 training samples that leaves none to train on"));
}

}  // namespace
}  // namespace runnel::validation_split_test
