#include <cmath>
#include <iostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "central/data/dataset.h"
#include "central/data/memory_datasets.h"
#include "central/data/portable_math.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/linear_model.h"

namespace runnel::synthetic_test {
namespace {

using ::testing::HasSubstr;

DatasetSplits Load(absl::string_view name, uint64_t seed) {
  absl::StatusOr<const DatasetRow*> row = FindDataset(name);
  EXPECT_TRUE(row.ok()) << row.status();
  absl::StatusOr<DatasetSplits> splits = (*row)->load({.seed = seed});
  EXPECT_TRUE(splits.ok()) << splits.status();
  return *std::move(splits);
}

// FNV-1a over bytes.
uint64_t Hash(const void* bytes, size_t size, uint64_t hash = 0xcbf29ce484222325u) {
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001b3u;
  }
  return hash;
}

uint64_t SampleHash(const Dataset& dataset, int64_t index, uint64_t hash = 0xcbf29ce484222325u) {
  std::vector<float> x(dataset.sample_shape().elements());
  dataset.CopySample(index, absl::MakeSpan(x));
  return Hash(x.data(), x.size() * sizeof(float), hash);
}

uint64_t SplitsHash(const DatasetSplits& splits) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Dataset* split : {splits.train.get(), splits.test.get()}) {
    for (int64_t i = 0; i < split->size(); ++i) {
      hash = SampleHash(*split, i, hash);
      const int32_t label = split->label(i);
      hash = Hash(&label, sizeof(label), hash);
    }
  }
  return hash;
}

void ExpectBalanced(const Dataset& dataset) {
  std::vector<int64_t> counts(dataset.classes(), 0);
  for (int64_t i = 0; i < dataset.size(); ++i) ++counts.at(dataset.label(i));
  for (int64_t count : counts) EXPECT_EQ(count, dataset.size() / dataset.classes());
}

void ExpectNoSampleTwice(const DatasetSplits& splits) {
  std::set<uint64_t> seen;
  for (const Dataset* split : {splits.train.get(), splits.test.get()}) {
    for (int64_t i = 0; i < split->size(); ++i) {
      EXPECT_TRUE(seen.insert(SampleHash(*split, i)).second) << "sample " << i;
    }
  }
}

TEST(SyntheticDigits, IsWhatItSays) {
  const DatasetSplits splits = Load("synthetic_digits", 1);
  EXPECT_EQ(splits.train->size(), 6000);
  EXPECT_EQ(splits.test->size(), 1000);
  EXPECT_EQ(splits.train->sample_shape(), Shape({1, 28, 28}));
  EXPECT_EQ(splits.train->classes(), 10);
  ExpectBalanced(*splits.train);
  ExpectBalanced(*splits.test);
  ExpectNoSampleTwice(splits);
}

TEST(SyntheticHar, IsWhatItSays) {
  const DatasetSplits splits = Load("synthetic_har", 1);
  EXPECT_EQ(splits.train->size(), 2400);
  EXPECT_EQ(splits.test->size(), 600);
  EXPECT_EQ(splits.train->sample_shape(), Shape({9, 128}));
  EXPECT_EQ(splits.train->classes(), 6);
  ExpectBalanced(*splits.train);
  ExpectBalanced(*splits.test);
  ExpectNoSampleTwice(splits);
}

TEST(SyntheticKeywords, IsWhatItSays) {
  const DatasetSplits splits = Load("synthetic_keywords", 1);
  EXPECT_EQ(splits.train->size(), 4800);
  EXPECT_EQ(splits.test->size(), 1200);
  EXPECT_EQ(splits.train->sample_shape(), Shape({1, 49, 10}));
  EXPECT_EQ(splits.train->classes(), 12);
  ExpectBalanced(*splits.train);
  ExpectBalanced(*splits.test);
  ExpectNoSampleTwice(splits);
}

// Golden hashes: a change of the generators changes every result that was published on them.
TEST(Synthetic, TheSeedFixesEveryByte) {
  EXPECT_EQ(SplitsHash(Load("synthetic_digits", 1)), 2960650486289162307u);
  EXPECT_EQ(SplitsHash(Load("synthetic_har", 1)), 6001234375573066436u);
  EXPECT_EQ(SplitsHash(Load("synthetic_keywords", 1)), 6243287556753713072u);
  EXPECT_NE(SplitsHash(Load("synthetic_digits", 2)), SplitsHash(Load("synthetic_digits", 1)));
  EXPECT_NE(SplitsHash(Load("synthetic_har", 2)), SplitsHash(Load("synthetic_har", 1)));
}

// A data set that a linear model solves would prove nothing about the training of a network. (LeNet
// and the HAR CNN reach 99 % and more on them with their default settings.)
TEST(SyntheticDigits, ALinearModelStaysFarBelow) {
  const LinearAccuracy accuracy = TrainLinearModel(Load("synthetic_digits", 1), 10, 0.03f);
  std::cout << "linear model: train " << accuracy.train << ", test " << accuracy.test << "\n";
  EXPECT_LT(accuracy.test, 0.85);
  EXPECT_GT(accuracy.test, 0.5) << "the classes should not be arbitrary either";
}

TEST(SyntheticHar, ALinearModelStaysFarBelow) {
  const LinearAccuracy accuracy = TrainLinearModel(Load("synthetic_har", 1), 10, 0.03f);
  std::cout << "linear model: train " << accuracy.train << ", test " << accuracy.test << "\n";
  EXPECT_LT(accuracy.test, 0.5);
}

TEST(SyntheticKeywords, ALinearModelStaysFarBelow) {
  const LinearAccuracy accuracy = TrainLinearModel(Load("synthetic_keywords", 1), 10, 0.03f);
  std::cout << "linear model: train " << accuracy.train << ", test " << accuracy.test << "\n";
  EXPECT_LT(accuracy.test, 0.7);
}

// The yardstick itself learns what is linear.
TEST(LinearModel, LearnsALinearlySeparableSet) {
  std::vector<float> values;
  std::vector<uint8_t> labels;
  data::Draws draws(CounterRandom(5, RandomPurpose::kTest, 0, 0));
  for (int i = 0; i < 600; ++i) {
    const double x = draws.Between(-1, 1);
    const double y = draws.Between(-1, 1);
    labels.push_back(x > y ? 1 : 0);
    values.push_back(static_cast<float>(x));
    values.push_back(static_cast<float>(y));
  }
  DatasetSplits splits;
  splits.train = std::make_unique<data::SignalDataset>(Shape{1, 2}, 2, values, labels);
  splits.test = std::make_unique<data::SignalDataset>(Shape{1, 2}, 2, values, labels);
  EXPECT_GT(TrainLinearModel(splits, 50, 1.0f).test, 0.98);
}

TEST(PortableMath, SineIsASine) {
  for (int i = -4000; i <= 4000; ++i) {
    const double turns = i / 1000.0 + 0.00037;
    EXPECT_NEAR(SinTurns(turns), std::sin(turns * 6.283185307179586), 1e-8);
    EXPECT_NEAR(CosTurns(turns), std::cos(turns * 6.283185307179586), 1e-8);
  }
}

TEST(PortableMath, NoiseHasUnitVariance) {
  data::Draws draws(CounterRandom(1, RandomPurpose::kTest, 0, 0));
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = draws.Noise();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(Datasets, TheTableSaysWhatNeedsADataDir) {
  EXPECT_THAT(DatasetNames(),
              ::testing::ElementsAre("synthetic_digits", "synthetic_har", "synthetic_keywords",
                                     "mnist", "cifar10", "ucihar", "wikitext2", "wikitext2_words",
                                     "csv:FILE[,label=COLUMN]", "npy:SAMPLES,LABELS",
                                     "images:FOLDER[,size=SIDE]", "latents:FILE"));
  for (const DatasetRow& row : BuiltinDatasets()) {
    const auto splits = LoadDataset(absl::StrCat(row.name, row.is_own() ? ":" : ""), "", 1);
    EXPECT_EQ(splits.ok(), !row.needs_data_dir && !row.is_own()) << row.name;
    if (!splits.ok()) {
      EXPECT_THAT(std::string(splits.status().message()),
                  HasSubstr(row.is_own() ? "--data " : "--data-dir"));
    }
  }
  EXPECT_FALSE(FindDataset("csv").ok());
  EXPECT_FALSE(FindDataset("mnist:here").ok());
  EXPECT_EQ((*FindDataset("csv:a:b"))->name, "csv");
  EXPECT_THAT(std::string(FindDataset("imagenet").status().message()),
              HasSubstr("'imagenet' is not known; there are synthetic_digits, synthetic_har"));
}

}  // namespace
}  // namespace runnel::synthetic_test
