#include "central/data/batch_source.h"
#include "central/data/loaders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/data_scratch.h"

namespace runnel {
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
    folder_.Write("train.txt", Text(300));
    folder_.Write("test.txt", Text(65));
  }
  absl::StatusOr<DatasetSplits> Load() { return data::LoadWikitext2(folder_.path(), 1); }
  std::string Error() { return std::string(Load().status().message()); }

  DataFolder folder_;
};

TEST_F(Wikitext2, CutsATextIntoWindowsWithTheNextByteAsLabel) {
  const auto splits = Load();
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->size(), 4);  // 299 bytes have one behind them
  EXPECT_EQ(splits->test->size(), 1);
  EXPECT_EQ(splits->train->sample_shape(), Shape({64}));
  EXPECT_EQ(splits->train->tokens(), 256);
  EXPECT_EQ(splits->train->classes(), 256);
  EXPECT_EQ(splits->train->labels_per_sample(), 64);
  BatchSource source(*splits->train, 7);
  std::vector<float> x(2 * 64);
  std::vector<int32_t> labels(2 * 64);
  source.FillTest(2, 2, absl::MakeSpan(x), absl::MakeSpan(labels));
  for (int i = 0; i < 2 * 64; ++i) {
    EXPECT_EQ(x[static_cast<size_t>(i)], (128 + i) * 7 % 256) << i;
    EXPECT_EQ(labels[static_cast<size_t>(i)], (129 + i) * 7 % 256) << i;
  }
}

TEST_F(Wikitext2, LabelsGoWithTheirSamplesInAnyOrder) {
  const auto splits = Load();
  ASSERT_TRUE(splits.ok()) << splits.status();
  BatchSource source(*splits->train, 7);
  std::vector<float> x(4 * 64);
  std::vector<int32_t> labels(4 * 64);
  const Batching batching = Batching::Create(4, 4, 1, 1).value();
  source.Fill(batching.Locate(Sequence(0)), absl::MakeSpan(x), absl::MakeSpan(labels));
  for (size_t i = 0; i < labels.size(); ++i)
    EXPECT_EQ(labels[i], (static_cast<int>(x[i]) + 7) % 256) << i;
}

TEST_F(Wikitext2, NamesWhatIsMissingOrTooShort) {
  folder_.Write("test.txt", Text(64));
  EXPECT_THAT(Error(), HasSubstr("test.txt: has 64 bytes, one sample needs 65"));
  folder_.Write("test.txt", "");
  EXPECT_THAT(Error(), HasSubstr("test.txt: has 0 bytes"));
  folder_.Remove("test.txt");
  EXPECT_THAT(Error(), HasSubstr("none of test.txt, wiki.test.tokens, wiki.test.raw in "));
  folder_.Write("wikitext2/wiki.test.tokens", Text(70));
  EXPECT_EQ(Error(), "");
  folder_.Remove("train.txt");
  folder_.Write("train.txt.xz", "packed");
  EXPECT_THAT(Error(), HasSubstr("train.txt.xz is packed; unpack it with `xz -dk`"));
}

}  // namespace
}  // namespace runnel
