#include "central/data/batch_source.h"
#include "central/data/loaders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/data_scratch.h"

namespace runnel::wikitext2_test {
namespace {

using ::testing::HasSubstr;

// Bytes 0, 7, 14, ... of all 256 values.
std::string Text(int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(i * 7);
  return text;
}

class Wikitext2 : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("train.txt", Text(600));
    folder_.Write("test.txt", Text(129));
  }
  absl::StatusOr<DatasetSplits> Load() { return data::LoadWikitext2(folder_.path(), 1); }
  std::string Error() { return std::string(Load().status().message()); }

  DataFolder folder_;
};

TEST_F(Wikitext2, CutsATextIntoWindowsWithTheNextByteAsLabel) {
  const auto splits = Load();
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->size(), 4);  // 599 bytes have one behind them
  EXPECT_EQ(splits->test->size(), 1);
  EXPECT_EQ(splits->train->sample_shape(), Shape({128}));
  EXPECT_EQ(splits->train->tokens(), 256);
  EXPECT_EQ(splits->train->classes(), 256);
  EXPECT_EQ(splits->train->labels_per_sample(), 128);
  BatchSource source(*splits->train, 7);
  std::vector<float> x(2 * 128);
  std::vector<int32_t> labels(2 * 128);
  source.FillTest(2, 2, absl::MakeSpan(x), absl::MakeSpan(labels));
  for (int i = 0; i < 2 * 128; ++i) {
    EXPECT_EQ(x[static_cast<size_t>(i)], (256 + i) * 7 % 256) << i;
    EXPECT_EQ(labels[static_cast<size_t>(i)], (257 + i) * 7 % 256) << i;
  }
}

TEST_F(Wikitext2, LabelsGoWithTheirSamplesInAnyOrder) {
  const auto splits = Load();
  ASSERT_TRUE(splits.ok()) << splits.status();
  BatchSource source(*splits->train, 7);
  std::vector<float> x(4 * 128);
  std::vector<int32_t> labels(4 * 128);
  const Batching batching = Batching::Create(4, 4, 1, 1).value();
  source.Fill(batching.Locate(Sequence(0)), absl::MakeSpan(x), absl::MakeSpan(labels));
  for (size_t i = 0; i < labels.size(); ++i)
    EXPECT_EQ(labels[i], (static_cast<int>(x[i]) + 7) % 256) << i;
}

TEST_F(Wikitext2, NamesWhatIsMissingOrTooShort) {
  folder_.Write("test.txt", Text(128));
  EXPECT_THAT(Error(), HasSubstr("test.txt: has 128 bytes, one sample needs 129"));
  folder_.Write("test.txt", "");
  EXPECT_THAT(Error(), HasSubstr("test.txt: has 0 bytes"));
  folder_.Remove("test.txt");
  EXPECT_THAT(Error(), HasSubstr("none of test.txt, wiki.test.tokens, wiki.test.raw in "));
  folder_.Write("wikitext2/wiki.test.tokens", Text(140));
  EXPECT_EQ(Error(), "");
  folder_.Remove("train.txt");
  folder_.Write("train.txt.xz", "packed");
  EXPECT_THAT(Error(), HasSubstr("train.txt.xz is packed; unpack it with `xz -dk`"));
}

// Words in the order in which the training text has them first; <eos> stands behind each line.
class Wikitext2Words : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("train.txt", Lines(40) + "sea");
    folder_.Write("test.txt", Lines(33));
  }
  static std::string Lines(int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += " the river  runs\n";
    return text;
  }
  absl::StatusOr<DatasetSplits> Load() { return data::LoadWikitext2Words(folder_.path(), 1); }

  DataFolder folder_;
};

TEST_F(Wikitext2Words, NumbersTheWordsOfTheTrainingText) {
  const auto splits = Load();
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->tokens(), 5);  // the, river, runs, <eos>, sea
  EXPECT_EQ(splits->test->tokens(), 5);
  EXPECT_EQ(splits->test->classes(), 5);
  EXPECT_EQ(splits->train->size(), 1);
  std::vector<float> x(128);
  splits->train->CopySample(0, absl::MakeSpan(x));
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(x[static_cast<size_t>(i)], i % 4);
    EXPECT_EQ(splits->train->label(i), (i + 1) % 4);
  }
  EXPECT_EQ(splits->train->label(159), 4) << "the last line has no end";
}

TEST_F(Wikitext2Words, AWordThatOnlyTheTestHasIsUnknown) {
  folder_.Write("test.txt", "the brook " + Lines(33));
  EXPECT_THAT(
      std::string(Load().status().message()),
      HasSubstr("test.txt: the word 'brook' is not in the training text, which has no <unk>"));
  folder_.Write("train.txt", "<unk> " + Lines(40));
  const auto splits = Load();
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->test->label(0), 0) << "<unk> came first";
}

TEST_F(Wikitext2Words, RefusesMoreWordsThanTokensCanNumber) {
  std::string text;
  for (int i = 0; i < 70'000; ++i) text += std::to_string(i) + (i % 10 == 9 ? "\n" : " ");
  folder_.Write("train.txt", text);
  EXPECT_THAT(std::string(Load().status().message()),
              HasSubstr("train.txt: has more than 65536 different words; take --data wikitext2"));
}

}  // namespace
}  // namespace runnel::wikitext2_test
