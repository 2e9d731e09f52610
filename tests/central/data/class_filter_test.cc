#include "central/data/class_filter.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::class_filter_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DatasetSplits Digits() { return *LoadDataset("synthetic_digits", "", 1); }

std::string ErrorOf(const std::string& classes) {
  return std::string(OfClasses(Digits(), classes).status().message());
}

TEST(ClassFilter, KeepsTheSamplesOfTheClassesInTheirOrder) {
  const DatasetSplits all = Digits();
  const auto some = OfClasses(Digits(), "7,0-1");
  ASSERT_TRUE(some.ok()) << some.status();
  for (const auto& [whole, part] : {std::pair(all.train.get(), some->train.get()),
                                    std::pair(all.test.get(), some->test.get())}) {
    EXPECT_EQ(part->size(), whole->size() * 3 / 10);
    EXPECT_EQ(part->classes(), 10);
    EXPECT_EQ(part->sample_shape(), whole->sample_shape());
    EXPECT_EQ(part->outside(0), whole->outside(0));
    const auto elements = static_cast<size_t>(whole->sample_shape().elements());
    std::vector<float> expected(elements), kept(elements);
    std::set<int32_t> labels;
    int64_t next = 0;
    for (int64_t i = 0; i < whole->size(); ++i) {
      const int32_t label = whole->label(i);
      if (label != 0 && label != 1 && label != 7) continue;
      ASSERT_LT(next, part->size());
      EXPECT_EQ(part->label(next), label);
      whole->CopySample(i, absl::MakeSpan(expected));
      part->CopySample(next++, absl::MakeSpan(kept));
      EXPECT_EQ(kept, expected);
      labels.insert(label);
    }
    EXPECT_EQ(next, part->size());
    EXPECT_THAT(labels, ElementsAre(0, 1, 7));
  }
  EXPECT_EQ(OfClasses(Digits(), "0-9")->train->size(), all.train->size());
}

TEST(ClassFilter, WhatMakesNoSenseIsNamed) {
  EXPECT_THAT(ErrorOf("0-10"), HasSubstr("there is no class 10, they are 0 to 9"));
  for (const char* bad : {"", "x", "-1", "3-1", "1-", "1,,2", "1-2-3", "99999999999999999999"})
    EXPECT_THAT(ErrorOf(bad), HasSubstr("is neither a class nor a range such as 0-8")) << bad;
}

}  // namespace
}  // namespace runnel::class_filter_test
