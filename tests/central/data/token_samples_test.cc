// Texts and arrays of tokens without labels, read by the description that a model keeps.

#include "absl/strings/str_cat.h"
#include "central/data/joined_dataset.h"
#include "central/data/loaders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/data_scratch.h"

namespace runnel::token_samples_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Array(const std::string& shape, const std::vector<int64_t>& values) {
  std::string header =
      absl::StrCat("{'descr': '<i8', 'fortran_order': False, 'shape': (", shape, "), }");
  header.resize(117, ' ');
  return absl::StrCat(
      std::string("\x93NUMPY\x01\x00\x76\x00", 10), header, "\n",
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)));
}

class TokenSamples : public ::testing::Test {
 protected:
  std::string At(const std::string& name) const { return absl::StrCat(folder_.path(), "/", name); }
  // As a model's file would have it.
  static std::unique_ptr<Dataset> Kept(const Dataset& data) {
    const auto kept = ParseDescription(DescriptionText(data.Describe()));
    EXPECT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(*kept, data.Describe());
    auto kind = DescribedDataset(*kept);
    EXPECT_TRUE(kind.ok()) << kind.status();
    return *std::move(kind);
  }
  std::unique_ptr<Dataset> Read(const Dataset& kind, const std::string& name) const {
    auto samples = kind.Unlabelled(At(name));
    EXPECT_TRUE(samples.ok()) << samples.status();
    return *std::move(samples);
  }
  std::string Refusal(const Dataset& kind, const std::string& name) const {
    return std::string(kind.Unlabelled(At(name)).status().message());
  }
  static std::vector<int> Tokens(const Dataset& data, int64_t index, size_t first) {
    std::vector<float> sample(static_cast<size_t>(data.sample_shape().elements()));
    data.CopySample(index, absl::MakeSpan(sample));
    return {sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(first)};
  }

  DataFolder folder_;
};

TEST_F(TokenSamples, OfBytes) {
  folder_.Write("train.txt", std::string(300, 'x'));
  folder_.Write("test.txt", std::string(129, 'y'));
  const auto splits = data::LoadWikitext2(folder_.path(), 1);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const auto kind = Kept(*splits->train);
  folder_.Write("short.txt", "ab\n");
  const auto part = Read(*kind, "short.txt");
  EXPECT_EQ(part->size(), 1);
  EXPECT_EQ(part->tokens(), 256);
  EXPECT_EQ(part->classes(), 256);
  EXPECT_EQ(part->labels_per_sample(), 128);
  EXPECT_EQ(part->predicted_label(0), 2) << "behind the line's end";
  EXPECT_THAT(Tokens(*part, 0, 4), ElementsAre('a', 'b', '\n', 0));
  EXPECT_EQ(part->class_name('a'), "'a'");
  EXPECT_EQ(part->class_name('\n'), "newline");
  EXPECT_EQ(part->class_name(0xe2), "0xe2");
  EXPECT_EQ(splits->test->class_name('a'), "'a'");
  // Of a long text the end.
  folder_.Write("long.txt", absl::StrCat(std::string(500, 'z'), std::string(127, 'm'), "!"));
  const auto whole = Read(*kind, "long.txt");
  EXPECT_EQ(whole->predicted_label(0), 127);
  EXPECT_THAT(Tokens(*whole, 0, 2), ElementsAre('m', 'm'));
  EXPECT_EQ(Tokens(*whole, 0, 128).back(), '!');
  folder_.Write("empty.txt", "");
  EXPECT_THAT(Refusal(*kind, "empty.txt"), HasSubstr("samples of 0 tokens, the model takes 1 to"));
  EXPECT_THAT(Refusal(*kind, "none.txt"), HasSubstr("none.txt"));
}

TEST_F(TokenSamples, OfWords) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "the river <unk> runs\n";
  folder_.Write("train.txt", text);
  folder_.Write("test.txt", text);
  const auto splits = data::LoadWikitext2Words(folder_.path(), 1);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const auto kind = Kept(*splits->train);
  folder_.Write("new.txt", "river the brook");
  const auto part = Read(*kind, "new.txt");
  EXPECT_EQ(part->classes(), 5);
  EXPECT_EQ(part->class_name(1), "river");
  EXPECT_EQ(part->class_name(4), "<eos>");
  EXPECT_EQ(part->predicted_label(0), 2);
  EXPECT_THAT(Tokens(*part, 0, 3), ElementsAre(1, 0, 2)) << "the brook is unknown";
  // Files of before the words were kept.
  DataDescription old = splits->train->Describe();
  old.classes.clear();
  const auto kept = ParseDescription(DescriptionText(old));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(std::string(DescribedDataset(*kept).status().message()),
              HasSubstr("does not hold the words of its data"));
  old.classes = {"a", "a"};
  EXPECT_THAT(std::string(DescribedDataset(old).status().message()), HasSubstr("'a' twice"));
}

TEST_F(TokenSamples, OfNumbersWithAClassOrATokenEach) {
  folder_.Write("x.npy", Array("4, 3", {1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1}));
  folder_.Write("y.npy", Array("4,", {0, 1, 0, 1}));
  const std::string pair = absl::StrCat(At("x.npy"), ",", At("y.npy"), ",tokens=9");
  const auto classes = data::LoadNpy(pair, 1);
  ASSERT_TRUE(classes.ok()) << classes.status();
  const auto kind = Kept(*classes->train);
  folder_.Write("new.npy", Array("2, 3", {0, 8, 1, 2, 2, 2}));
  const auto rows = Read(*kind, "new.npy");
  EXPECT_EQ(rows->size(), 2);
  EXPECT_EQ(rows->tokens(), 9);
  EXPECT_EQ(rows->classes(), 2);
  EXPECT_EQ(rows->labels_per_sample(), 1);
  EXPECT_EQ(rows->predicted_label(1), 0);
  EXPECT_EQ(rows->sample_name(1), absl::StrCat(At("new.npy"), "[1]"));
  EXPECT_THAT(Tokens(*rows, 0, 3), ElementsAre(0, 8, 1));
  folder_.Write("list.npy", Array("2,", {7, 7}));
  EXPECT_THAT(Refusal(*kind, "list.npy"), HasSubstr("samples of 2 tokens, the model takes 3"));
  folder_.Write("bad.npy", Array("1, 3", {0, 9, 1}));
  EXPECT_THAT(Refusal(*kind, "bad.npy"), HasSubstr("token 9 is no whole number below 9"));
  folder_.Write("a.txt", "1 2 3");
  EXPECT_THAT(Refusal(*kind, "a.txt"), HasSubstr("is no .npy file"));

  const auto next = data::LoadNpy(absl::StrCat(At("x.npy"), ",", At("x.npy"), ",tokens=9"), 1);
  ASSERT_TRUE(next.ok()) << next.status();
  const auto by_position = Kept(*next->train);
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(Read(*by_position, "new.npy"));
  parts.push_back(Read(*by_position, "list.npy"));
  folder_.Write("long.npy", Array("5,", {1, 2, 3, 4, 5}));
  parts.push_back(Read(*by_position, "long.npy"));
  const data::JoinedDataset all(std::move(parts));
  EXPECT_EQ(all.size(), 4);
  EXPECT_EQ(all.classes(), 9);
  EXPECT_EQ(all.tokens(), 9);
  EXPECT_EQ(all.labels_per_sample(), 3);
  EXPECT_EQ(all.predicted_label(1), 2);
  EXPECT_EQ(all.predicted_label(2), 1);
  EXPECT_EQ(all.predicted_label(3), 2);
  EXPECT_THAT(Tokens(all, 2, 3), ElementsAre(7, 7, 0));
  EXPECT_THAT(Tokens(all, 3, 3), ElementsAre(3, 4, 5));
  EXPECT_EQ(all.sample_name(2), At("list.npy"));
}

}  // namespace
}  // namespace runnel::token_samples_test
