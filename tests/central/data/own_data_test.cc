// The user's own data: tables, arrays, folders of pictures; good ones, and every kind of bad one.

#include <png.h>
#include <turbojpeg.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "central/data/joined_dataset.h"
#include "central/data/loaders.h"
#include "central/data/own/picture.h"
#include "central/data/own/split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/data_scratch.h"
#include "tests/central/data/own_samples.h"

namespace runnel::own_data_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(SplitByClass, KeepsAFifthOfEachClass) {
  std::vector<int32_t> labels;
  for (int i = 0; i < 100; ++i) labels.push_back(i < 50 ? 0 : i < 98 ? 1 : 2);
  labels.push_back(3);
  const data::SplitIndices split = data::SplitByClass(labels, 4, 7);
  EXPECT_THAT(split.test, SizeIs(10 + 9 + 1));
  EXPECT_THAT(split.train, SizeIs(81));
  std::set<int64_t> all(split.train.begin(), split.train.end());
  all.insert(split.test.begin(), split.test.end());
  EXPECT_THAT(all, SizeIs(101));
  EXPECT_EQ(data::SplitByClass(labels, 4, 7).test, split.test);
  EXPECT_NE(data::SplitByClass(labels, 4, 8).test, split.test);
}

class OwnData : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return absl::StrCat(folder_.path(), "/", name); }
  absl::StatusOr<DatasetSplits> Csv(const std::string& text, const std::string& options = "") {
    folder_.Write("t.csv", text);
    return data::LoadCsv({.place = absl::StrCat(At("t.csv"), options)});
  }

  static absl::StatusOr<DatasetSplits> Pictures(const std::string& place) {
    return data::LoadImageFolder({.place = place});
  }

  DataFolder folder_;
};

TEST_F(OwnData, TablesOfNumbersAndTexts) {
  std::string text = "\xEF\xBB\xBFlength;colour;\"kind; of it\"\r\n";
  for (int i = 0; i < 10; ++i)
    absl::StrAppend(&text, i, ".5;", i % 2 == 0 ? "red" : "\"deep \"\"blue\"\"\"", ";", i % 2,
                    "\r\n");
  const absl::StatusOr<DatasetSplits> splits = Csv(text);
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->sample_shape(), Shape({3}));
  EXPECT_EQ(splits->train->classes(), 2);
  EXPECT_EQ(splits->train->size(), 8);
  EXPECT_EQ(splits->test->size(), 2);
  // Normalised over the training samples, by feature.
  for (int feature = 0; feature < 3; ++feature) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 8; ++i) {
      const double value = Sample(*splits->train, i)[static_cast<size_t>(feature)];
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum, 0, 1e-5);
    EXPECT_NEAR(squares, 8, 1e-4);
  }
  // Red is class 0.
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(Sample(*splits->train, i)[2] > 0, splits->train->label(i) == 0);
}

TEST_F(OwnData, TheClassIsTheColumnThatIsNamed) {
  const std::string text = "x,Label,y\n1,a,4\n2,b,5\n3,a,6\n4,b,7\n";
  EXPECT_EQ(Csv(text)->train->sample_shape(), Shape({2}));
  EXPECT_EQ(Csv(text)->train->classes(), 2);
  EXPECT_EQ(Csv(text, ",label=y")->train->classes(), 4);
  EXPECT_EQ(Csv(text, ",skip=y")->train->sample_shape(), Shape({1}));
  EXPECT_THAT(Refusal(Csv(text, ",label=z")), HasSubstr("has no column 'z'; it has x, Label, y"));
  EXPECT_THAT(Refusal(Csv(text, ",lable=y")), HasSubstr("'lable=y' is no option"));
  // Without a line of names the last column.
  EXPECT_EQ(Csv("1,2,7\n3,4,8\n5,,8\n")->train->sample_shape(), Shape({2}));
}

TEST_F(OwnData, BadTables) {
  EXPECT_THAT(Refusal(Csv("")), HasSubstr("holds no samples"));
  EXPECT_THAT(Refusal(Csv("a\n1\n")), HasSubstr("line 1: one column"));
  EXPECT_THAT(Refusal(Csv("a,b\n1,2\n1,2,3\n")),
              HasSubstr("line 3: has 3 fields, the first line 2"));
  EXPECT_THAT(Refusal(Csv("a,label\n1,x\n1,\n")), HasSubstr("line 3: the class (column 'label')"));
  EXPECT_THAT(Refusal(Csv("a,label\n1,x\n2,x\n")), HasSubstr("has 1 class; training needs 2"));
  EXPECT_THAT(Refusal(Csv("a,label\n1,x\ninf,y\n")), HasSubstr("line 3: column 'a' is inf"));
  EXPECT_THAT(Refusal(Csv("a,label\n\"1,x\n")), HasSubstr("line 2: a quote is not closed"));
  std::string names = "name,label\n";
  for (int i = 0; i < 300; ++i) absl::StrAppend(&names, "n", i, ",", i % 2, "\n");
  EXPECT_THAT(Refusal(Csv(names)),
              AllOf(HasSubstr("line 2: column 'name' holds 'n0'"), HasSubstr("skip=name")));
  EXPECT_THAT(Refusal(data::LoadCsv({.place = At("none.csv")})), HasSubstr("none.csv"));
  EXPECT_THAT(Refusal(data::LoadCsv({.place = ""})), HasSubstr("--data csv:FILE"));
}

template <typename T>
std::string Npy(const std::string& type, const std::string& shape, const std::vector<T>& values,
                const std::string& order = "False") {
  std::string header =
      absl::StrCat("{'descr': '", type, "', 'fortran_order': ", order, ", 'shape': ", shape, ", }");
  header.append(64 - (10 + header.size() + 1) % 64, ' ').append("\n");
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() % 256);
  text += static_cast<char>(header.size() / 256);
  text += header;
  return text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class NpyData : public OwnData {
 protected:
  absl::StatusOr<DatasetSplits> Load(const std::string& x, const std::string& y) {
    folder_.Write("x.npy", x);
    folder_.Write("y.npy", y);
    return data::LoadNpy(absl::StrCat(At("x.npy"), ",", At("y.npy")), 1);
  }
  const std::string labels_ = Npy<int64_t>("<i8", "(4,)", {5, 9, 5, 9});
};

TEST_F(NpyData, ArraysOfEachType) {
  const auto floats = Load(Npy<float>("<f4", "(4, 2)", {1, 10, 2, 20, 3, 30, 4, 40}), labels_);
  ASSERT_TRUE(floats.ok()) << floats.status();
  EXPECT_EQ(floats->train->sample_shape(), Shape({2}));
  EXPECT_EQ(floats->train->classes(), 2);
  EXPECT_EQ(floats->train->size() + floats->test->size(), 4);
  const std::vector<float> sample = Sample(*floats->train, 0);
  EXPECT_NEAR(sample[0], sample[1], 1e-5) << "each feature by its own scale";
  const auto pixels =
      Load(Npy<uint8_t>("|u1", "(4, 1, 2)", {0, 255, 0, 255, 0, 255, 0, 255}), labels_);
  ASSERT_TRUE(pixels.ok()) << pixels.status();
  EXPECT_EQ(pixels->train->sample_shape(), Shape({1, 1, 2}));
  EXPECT_THAT(Sample(*pixels->train, 1), ElementsAre(-1, 1));
  EXPECT_EQ(pixels->train->outside(0), -1);
  const auto signals = Load(Npy<double>("<f8", "(4, 1, 2)", {1, 2, 3, 4, 5, 6, 7, 8}), labels_);
  ASSERT_TRUE(signals.ok()) << signals.status();
  EXPECT_EQ(signals->train->sample_shape(), Shape({1, 2}));
}

TEST_F(NpyData, BadArrays) {
  const std::string x = Npy<float>("<f4", "(4, 1)", {1, 2, 3, 4});
  EXPECT_TRUE(Load(x, labels_).ok());
  EXPECT_THAT(Refusal(Load("hello, world", labels_)), HasSubstr("x.npy: is no .npy file"));
  EXPECT_THAT(Refusal(Load(x.substr(0, 20), labels_)), HasSubstr("ends within its header"));
  EXPECT_THAT(Refusal(Load(x.substr(0, x.size() - 1), labels_)), HasSubstr("its shape needs"));
  EXPECT_THAT(Refusal(Load(Npy<float>(">f4", "(4, 1)", {1, 2, 3, 4}), labels_)), HasSubstr(">f4"));
  EXPECT_THAT(Refusal(Load(Npy<float>("<c8", "(2, 1)", {1, 2, 3, 4}), labels_)), HasSubstr("<c8"));
  EXPECT_THAT(Refusal(Load(Npy<float>("<f4", "(4, 1)", {1, 2, 3, 4}, "True"), labels_)),
              HasSubstr("Fortran"));
  EXPECT_THAT(Refusal(Load(Npy<float>("<f4", "(4, -1)", {1, 2, 3, 4}), labels_)),
              HasSubstr("shape"));
  EXPECT_THAT(Refusal(Load(Npy<float>("<f4", "(4, 9999999999)", {1}), labels_)),
              HasSubstr("shape"));
  EXPECT_THAT(Refusal(Load(Npy<float>("<f4", "(2, 2)", {1, 2, 3, 4}), labels_)),
              HasSubstr("2 samples"));
  EXPECT_THAT(Refusal(Load(Npy<float>("<f4", "(4, 1)", {1, 2, NAN, NAN}), labels_)),
              HasSubstr("holds nan"));
  // Whichever it is, also one of the test.
  for (int64_t i = 0; i < 4; ++i) {
    std::vector<float> values = {1, 2, 3, 4};
    values[static_cast<size_t>(i)] = INFINITY;
    EXPECT_THAT(Refusal(Load(Npy<float>("<f4", "(4, 1)", values), labels_)),
                HasSubstr(absl::StrCat("sample ", i, " holds inf")));
  }
  EXPECT_THAT(Refusal(Load(x, Npy<float>("<f4", "(4,)", {1, 2, 1, 2.5f}))),
              HasSubstr("which is no integer"));
  EXPECT_THAT(Refusal(data::LoadNpy("x.npy", 1)), HasSubstr("a path is missing"));
}

TEST_F(NpyData, TokensHaveALabelEachOrOneASample) {
  folder_.Write("x.npy", Npy<int32_t>("<i4", "(5, 2)", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const auto load = [&](const std::string& labels, const std::string& options) {
    folder_.Write("y.npy", labels);
    return data::LoadNpy(absl::StrCat(At("x.npy"), ",", At("y.npy"), options), 1);
  };
  const std::string next = Npy<int64_t>("<i8", "(5, 2)", {1, 2, 3, 4, 5, 6, 7, 8, 9, 0});
  const auto each = load(next, ",tokens=12");
  ASSERT_TRUE(each.ok()) << each.status();
  EXPECT_EQ(each->train->size(), 4);
  EXPECT_EQ(each->test->size(), 1);
  EXPECT_EQ(each->train->tokens(), 12);
  EXPECT_EQ(each->train->classes(), 12);
  EXPECT_EQ(each->train->labels_per_sample(), 2);
  EXPECT_EQ(each->train->sample_shape(), Shape({2}));
  for (const Dataset* split : {each->train.get(), each->test.get()}) {
    for (int64_t i = 0; i < split->size(); ++i) {
      const std::vector<float> sample = Sample(*split, i);
      EXPECT_EQ(static_cast<float>(split->label(2 * i)), sample[1]);
      EXPECT_EQ(split->label(2 * i + 1), static_cast<int>(sample[1] + 1) % 10);
    }
  }
  const std::string kinds = Npy<int64_t>("<i8", "(5,)", {0, 1, 2, 1, 0});
  const std::string test = absl::StrCat(",test=", At("x.npy"), ";", At("y.npy"));
  const auto one = load(kinds, absl::StrCat(",tokens=10", test));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->test->size(), 5);
  EXPECT_EQ(one->train->classes(), 3);
  EXPECT_EQ(one->train->labels_per_sample(), 1);
  EXPECT_EQ(one->test->label(2), 2);

  EXPECT_THAT(Refusal(load(next, ",tokens=9")),
              HasSubstr("x.npy: token 9 of sample 4 is no whole number below 9"));
  EXPECT_THAT(Refusal(load(next, ",tokens=many")), HasSubstr("tokens is 'many', not from 2 to"));
  EXPECT_THAT(
      Refusal(load(Npy<int64_t>("<i8", "(5, 2)", {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}), ",tokens=10")),
      HasSubstr("y.npy: label 12 is no token below 10"));
  EXPECT_THAT(Refusal(load(Npy<float>("<f4", "(5,)", {0, 1, 0.5f, 1, NAN}), ",tokens=10")),
              HasSubstr("y.npy: label 0.5 of sample 2"));
  EXPECT_THAT(Refusal(load(Npy<int64_t>("<i8", "(4,)", {0, 1, 2, 1}), ",tokens=10")),
              HasSubstr("5 samples"));
  EXPECT_THAT(Refusal(load(Npy<int64_t>("<i8", "(5, 3)", std::vector<int64_t>(15)), ",tokens=10")),
              HasSubstr("has 3 labels a sample, for 2 positions"));
}

TEST_F(NpyData, ATestOfItsOwnAndNumbersAsTheyAre) {
  folder_.Write("xt.npy", Npy<float>("<f4", "(2, 1)", {7, 8}));
  folder_.Write("yt.npy", Npy<int64_t>("<i8", "(2,)", {9, 11}));
  folder_.Write("x.npy", Npy<float>("<f4", "(4, 1)", {1, 2, 3, 4}));
  folder_.Write("y.npy", labels_);
  const std::string own = absl::StrCat(At("x.npy"), ",", At("y.npy"));
  const std::string test = absl::StrCat(",test=", At("xt.npy"), ";", At("yt.npy"));
  const auto splits = data::LoadNpy(absl::StrCat(own, test, ",scale=off"), 1);
  ASSERT_TRUE(splits.ok()) << splits.status();
  ASSERT_EQ(splits->train->size(), 4);
  ASSERT_EQ(splits->test->size(), 2);
  EXPECT_EQ(splits->train->classes(), 3) << "those of both files";
  EXPECT_EQ(splits->train->label(3), 1);
  EXPECT_EQ(splits->test->label(0), 1);
  EXPECT_EQ(splits->test->label(1), 2);
  EXPECT_THAT(Sample(*splits->train, 3), ElementsAre(4));
  EXPECT_THAT(Sample(*splits->test, 0), ElementsAre(7));
  const auto scaled = data::LoadNpy(absl::StrCat(own, test), 1);
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_THAT(Sample(*scaled->test, 0),
              ElementsAre(testing::FloatNear(4.5f / std::sqrt(1.25f), 1e-5f)))
      << "by mean and deviation of what trains";
  EXPECT_THAT(Refusal(data::LoadNpy(absl::StrCat(own, ",scale=on"), 1)),
              HasSubstr("scale is 'on'"));
  EXPECT_THAT(Refusal(data::LoadNpy(absl::StrCat(own, ",test=", At("xt.npy")), 1)),
              HasSubstr("test=SAMPLES;LABELS"));
  folder_.Write("xt.npy", Npy<float>("<f4", "(2, 2)", {7, 8, 9, 10}));
  EXPECT_THAT(Refusal(data::LoadNpy(absl::StrCat(own, test), 1)), HasSubstr("of another shape"));
}

// A sparse file of gigabytes: samples are read one by one.
TEST_F(NpyData, LargerThanMemoryShouldHold) {
  std::string x = Npy<float>("<f4", "(40, 25000000)", {});
  folder_.Write("x.npy", x);
  folder_.Write("y.npy", Npy<uint8_t>("|u1", "(40,)", std::vector<uint8_t>(40, 0)));
  std::filesystem::resize_file(At("x.npy"), x.size() + int64_t{4} * 40 * 25'000'000);
  // One class: refused, but only after the file was taken as it is.
  EXPECT_THAT(Refusal(data::LoadNpy(absl::StrCat(At("x.npy"), ",", At("y.npy")), 1)),
              HasSubstr("has 1 class;"));
}

TEST_F(NpyData, DamagedHeadersNeverCrash) {
  constexpr uint32_t kSeed = 20261125;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string good = Npy<float>("<f4", "(4, 1)", {1, 2, 3, 4});
  int accepted = 0;
  for (int round = 0; round < 500; ++round) {
    std::string text = good;
    for (uint32_t damage = 1 + random() % 3; damage > 0; --damage)
      text[random() % text.size()] = static_cast<char>(random());
    if (Load(text, labels_).ok()) ++accepted;
  }
  EXPECT_GT(accepted, 10);
}

// One colour, so that JPEG is exact to a step or two.
std::string Png(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  std::vector<uint8_t> rgb;
  for (int i = 0; i < width * height; ++i) rgb.insert(rgb.end(), {red, green, blue});
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<uint32_t>(width);
  image.height = static_cast<uint32_t>(height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, rgb.data(), 0, nullptr);
  std::string file(size, '\0');
  png_image_write_to_memory(&image, file.data(), &size, 0, rgb.data(), 0, nullptr);
  return file.substr(0, size);
}

std::string Jpeg(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  std::vector<uint8_t> rgb;
  for (int i = 0; i < width * height; ++i) rgb.insert(rgb.end(), {red, green, blue});
  tjhandle writer = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(writer, rgb.data(), width, 0, height, TJPF_RGB, &bytes, &size, TJSAMP_444, 95, 0);
  std::string file(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(writer);
  return file;
}

TEST_F(OwnData, FoldersOfPictures) {
  for (int i = 0; i < 5; ++i) {
    folder_.Write(absl::StrCat("p/cat/", i, ".png"), Png(40 + i, 30, 255, 0, 0));
    folder_.Write(absl::StrCat("p/dog/", i, ".JPG"), Jpeg(20, 64, 0, 0, 255));
  }
  folder_.Write("p/dog/notes.txt", "no picture");
  const auto splits = Pictures(absl::StrCat(At("p"), ",size=16"));
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->note, "");
  EXPECT_EQ(splits->train->sample_shape(), Shape({3, 16, 16}));
  EXPECT_EQ(splits->train->classes(), 2);
  EXPECT_EQ(splits->train->size(), 8);
  EXPECT_EQ(splits->test->size(), 2);
  for (int64_t i = 0; i < 8; ++i) {
    const std::vector<float> sample = Sample(*splits->train, i);
    const bool is_cat = splits->train->label(i) == 0;
    EXPECT_NEAR(sample[0], is_cat ? 1 : -1, 0.05);
    EXPECT_NEAR(sample[255], is_cat ? 1 : -1, 0.05);
    EXPECT_NEAR(sample[600], is_cat ? -1 : 1, 0.05);
  }
}

TEST_F(OwnData, BrokenPicturesAreCountedUpToOneInAHundred) {
  for (int i = 0; i < 100; ++i)
    folder_.Write(absl::StrCat("p/", i % 2, "/", i, ".png"),
                  Png(4, 4, static_cast<uint8_t>(i), 0, 0));
  folder_.Write("p/0/broken.png", Png(4, 4, 1, 2, 3).substr(0, 60));
  const auto splits = Pictures(At("p"));
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_THAT(splits->note,
              AllOf(HasSubstr("1 of 101 pictures are left out"), HasSubstr("broken.png")));
  folder_.Write("p/0/worse.jpeg", "no picture");
  EXPECT_THAT(Refusal(Pictures(At("p"))),
              AllOf(HasSubstr("2 of 102 pictures are broken"), HasSubstr("broken.png")));
}

TEST_F(OwnData, BadFolders) {
  EXPECT_THAT(Refusal(Pictures(At("none"))), HasSubstr("none"));
  folder_.Write("flat/1.png", Png(4, 4, 1, 2, 3));
  EXPECT_THAT(Refusal(Pictures(At("flat"))), HasSubstr("one folder a class"));
  folder_.Write("one/a/1.png", Png(4, 4, 1, 2, 3));
  EXPECT_THAT(Refusal(Pictures(At("one"))), HasSubstr("has 1 class;"));
  EXPECT_THAT(Refusal(Pictures(At("one") + ",size=0")), HasSubstr("size=0"));
  EXPECT_THAT(Refusal(Pictures(At("one") + ",size=1x2x3")), HasSubstr("size="));
}

// A link that leads to itself is passed over, beside the classes and in one.
TEST_F(OwnData, LinksThatLeadToThemselves) {
  for (int i = 0; i < 8; ++i)
    folder_.Write(absl::StrCat(i % 2 == 0 ? "l/a/" : "l/b/", i, ".png"),
                  Png(4, 4, static_cast<uint8_t>(i), 0, 0));
  for (const char* name : {"l/loop", "l/a/loop"}) std::filesystem::create_symlink("loop", At(name));
  const auto splits = Pictures(At("l"));
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->classes(), 2);
}

// What other systems leave in folders is no class and no picture; pictures of other kinds are told.
TEST_F(OwnData, FoldersAsOtherSystemsLeaveThem) {
  for (int i = 0; i < 2; ++i) {
    folder_.Write(absl::StrCat("p/cat/", i, ".png"), Png(4, 4, 255, 0, 0));
    folder_.Write(absl::StrCat("p/dog/", i, ".png"), Png(4, 4, 0, 0, 255));
  }
  folder_.Write("p/cat/._0.png", "no picture");
  folder_.Write("p/__MACOSX/._cat.png", "no picture");
  folder_.Write("p/.ipynb_checkpoints/0.png", Png(4, 4, 0, 0, 255));
  const auto clean = Pictures(At("p"));
  ASSERT_TRUE(clean.ok()) << clean.status();
  EXPECT_EQ(clean->train->classes(), 2);
  EXPECT_EQ(clean->train->size() + clean->test->size(), 4);
  EXPECT_EQ(clean->note, "");
  folder_.Write("p/cat/2.webp", "another kind");
  EXPECT_THAT(Pictures(At("p"))->note,
              AllOf(HasSubstr("1 pictures of other kinds than PNG and JPEG"), HasSubstr("2.webp")));
  folder_.Write("w/cat/1.bmp", "another kind");
  EXPECT_THAT(Refusal(Pictures(At("w"))),
              AllOf(HasSubstr("1.bmp is of a kind that is not read"), HasSubstr("PNG or JPEG")));
  folder_.Write("n/train/cat/1.png", Png(4, 4, 1, 2, 3));
  EXPECT_THAT(Refusal(Pictures(At("n"))),
              HasSubstr(absl::StrCat("is it images:", At("n/train"), "?")));
}

// Samples without labels become what the same samples with labels are.
TEST_F(OwnData, UnlabelledSamplesAreNormalisedAsTheTrainingWas) {
  const auto table = Csv("x,garden,label\n1,north,a\n2,south,b\n3,north,a\n6,north,b\n");
  ASSERT_TRUE(table.ok()) << table.status();
  const Dataset& train = *table->train;
  EXPECT_EQ(train.class_name(1), "b");
  folder_.Write("new.csv", "garden,x\nwest,3\nnorth,3\nsouth,\n");
  const auto rows = train.Unlabelled(At("new.csv"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ((*rows)->size(), 3);
  // A sample of the training that has x = 3 or garden = north.
  std::set<float> norths, threes;
  for (const auto* split : {table->train.get(), table->test.get()}) {
    for (int64_t i = 0; i < split->size(); ++i) {
      threes.insert(Sample(*split, i)[0]);
      norths.insert(Sample(*split, i)[1]);
    }
  }
  EXPECT_EQ(threes.count(Sample(**rows, 1)[0]), 1u);
  EXPECT_EQ(norths.count(Sample(**rows, 1)[1]), 1u);
  EXPECT_EQ(Sample(**rows, 0)[0], Sample(**rows, 1)[0]);
  EXPECT_NE(Sample(**rows, 0)[1], Sample(**rows, 1)[1]) << "west is no garden of the training";
  EXPECT_EQ(Sample(**rows, 2)[0], 0) << "missing: the mean";
  const auto refusal = [](const Dataset& data, const std::string& place) {
    return std::string(data.Unlabelled(place).status().message());
  };
  folder_.Write("new.csv", "garden,x\nnorth,three\n");
  EXPECT_THAT(refusal(train, At("new.csv")),
              HasSubstr("new.csv: line 2: column 'x' holds 'three', which is no number"));
  folder_.Write("new.csv", "garden,y\nnorth,3\n");
  EXPECT_THAT(refusal(train, At("new.csv")), HasSubstr("no column 'x'"));
}

// The description alone reads the same, also columns that the training had not; a blank, a line's end
// and bytes that are no UTF-8 in names come back.
TEST_F(OwnData, ADescriptionReadsWhatItsDataSetDoes) {
  const auto table = Csv("x,garden,label\n1,north,a\n2,south,b\n3,north,a\n6,north,b\n");
  ASSERT_TRUE(table.ok()) << table.status();
  const Dataset& train = *table->train;
  folder_.Write("new.csv", "more,garden,x,label\n?,west,3,a\n7,north,3,\n7,south,,b\n");
  const absl::StatusOr<DataDescription> kept = ParseDescription(DescriptionText(train.Describe()));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept, train.Describe());
  const auto elsewhere = DescribedDataset(*kept);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  EXPECT_EQ((*elsewhere)->size(), 0);
  EXPECT_EQ((*elsewhere)->class_name(1), "b");
  const auto rows = train.Unlabelled(At("new.csv"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  const auto again = (*elsewhere)->Unlabelled(At("new.csv"));
  ASSERT_TRUE(again.ok()) << again.status();
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(Sample(**again, i), Sample(**rows, i));
  EXPECT_EQ((*again)->sample_name(2), At("new.csv:4"));
  DataDescription odd = *kept;
  odd.classes = {" a\nb ", "\xff\"\\"};
  odd.scales[0] = {1.0 / 3, 2e-17 / 3};
  odd.columns[1].categories = {"", "x\ty"};
  EXPECT_EQ(*ParseDescription(DescriptionText(odd)), odd);
  // Samples would be read by columns and scales that nothing has checked.
  odd.vocabulary = "words";
  EXPECT_FALSE(ParseDescription(DescriptionText(odd)).ok());
}

TEST_F(OwnData, UnlabelledPicturesAreFittedAsTheTrainingWas) {
  for (int i = 0; i < 4; ++i) {
    folder_.Write(absl::StrCat("p/", i % 2 == 0 ? "cat" : "dog", "/", i, ".png"),
                  Png(8, 8, static_cast<uint8_t>(60 * i), 0, 9));
    folder_.Write(absl::StrCat("new/", i, ".png"), Png(8, 8, static_cast<uint8_t>(60 * i), 0, 9));
  }
  const auto pictures = Pictures(absl::StrCat(At("p"), ",size=8"));
  ASSERT_TRUE(pictures.ok()) << pictures.status();
  const auto fresh = pictures->train->Unlabelled(At("new"));
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  std::set<std::vector<float>> known, given;
  for (int64_t i = 0; i < (*fresh)->size(); ++i) given.insert(Sample(**fresh, i));
  for (const auto* split : {pictures->train.get(), pictures->test.get()})
    for (int64_t i = 0; i < split->size(); ++i) known.insert(Sample(*split, i));
  EXPECT_EQ(given, known);
  EXPECT_EQ((*fresh)->class_name(1), "dog");
  // By the description, a file at a time, in any size.
  const auto described = DescribedDataset(pictures->train->Describe());
  ASSERT_TRUE(described.ok()) << described.status();
  const auto one = (*described)->Unlabelled(At("new/3.png"));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->size(), 1);
  EXPECT_EQ(Sample(**one, 0), Sample(**fresh, 3));
  folder_.Write("new-large.png", Png(16, 24, 180, 0, 9));
  std::vector<std::unique_ptr<Dataset>> parts;
  for (const std::string name : {"new", "new-large.png"}) {
    auto part = (*described)->Unlabelled(At(name));
    ASSERT_TRUE(part.ok()) << part.status();
    parts.push_back(*std::move(part));
  }
  const data::JoinedDataset joined(std::move(parts));
  ASSERT_EQ(joined.size(), 5);
  EXPECT_EQ(Sample(joined, 4), Sample(**fresh, 3)) << "one colour in any size";
  EXPECT_EQ(joined.sample_name(4), At("new-large.png"));
  EXPECT_EQ(joined.sample_name(1), At("new/1.png"));
  folder_.Write("new/5.png", "no picture");
  const auto refusal = [](const Dataset& data, const std::string& place) {
    return std::string(data.Unlabelled(place).status().message());
  };
  EXPECT_THAT(refusal(*pictures->train, At("new")), HasSubstr("5.png"));
  EXPECT_THAT(refusal(*pictures->train, At("p")), HasSubstr("holds no .png"));
}

// Weights of the triangle, by hand: 4 pixels to 2, each two pixels wide.
TEST(Picture, IsAveragedWhereItShrinks) {
  data::Picture picture{4, 1, {}};
  for (const int value : {0, 0, 240, 240})
    for (int c = 0; c < 3; ++c) picture.rgb.push_back(static_cast<uint8_t>(value));
  const std::vector<uint8_t> planes = data::Fitted(picture, 1, 4);
  EXPECT_THAT(std::vector<int>(planes.begin(), planes.begin() + 4), ElementsAre(0, 0, 240, 240));
  // A square of it is its middle pixel pair's part.
  const std::vector<uint8_t> middle = data::Fitted(picture, 1, 1);
  EXPECT_THAT(std::vector<int>(middle.begin(), middle.end()), ElementsAre(120, 120, 120));
}

TEST(Picture, DamageNeverCrashes) {
  constexpr uint32_t kSeed = 4712;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (const std::string& good : {Png(9, 7, 10, 200, 30), Jpeg(9, 7, 10, 200, 30)}) {
    for (int round = 0; round < 500; ++round) {
      std::string text = good;
      for (uint32_t damage = 1 + random() % 3; damage > 0; --damage)
        text[random() % text.size()] = static_cast<char>(random());
      if (random() % 4 == 0) text.resize(random() % text.size());
      const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
      const absl::StatusOr<data::Picture> picture =
          data::DecodePicture(absl::MakeConstSpan(bytes, text.size()));
      if (picture.ok()) {
        EXPECT_THAT(data::Fitted(*picture, 8, 8), SizeIs(192));
      }
    }
  }
}

}  // namespace
}  // namespace runnel::own_data_test
