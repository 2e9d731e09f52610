#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "central/data/loaders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/data_scratch.h"

namespace runnel::ucihar_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSignals[9] = {"body_acc_x",  "body_acc_y",  "body_acc_z",
                                     "body_gyro_x", "body_gyro_y", "body_gyro_z",
                                     "total_acc_x", "total_acc_y", "total_acc_z"};

// Channel c of window w is 10 c + w + 1 in the even places and 10 c + w - 1 in the odd ones.
std::string Window(int channel, int window, int length) {
  std::string line;
  for (int t = 0; t < length; ++t) {
    absl::StrAppend(&line, "  ", 10 * channel + window + (t % 2 == 0 ? 1 : -1), ".0e+000");
  }
  return line + "\n";
}

class UciHar : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteSplit("train", "5\n1\n6\n");
    WriteSplit("test", "2\n3\n");
  }
  void WriteSplit(const std::string& split, const std::string& labels) {
    folder_.Write(Root() + split + "/y_" + split + ".txt", labels);
    const int windows = static_cast<int>(std::count(labels.begin(), labels.end(), '\n'));
    for (int c = 0; c < 9; ++c) {
      std::string text;
      for (int w = 0; w < windows; ++w) text += Window(c, w, 128);
      folder_.Write(Signal(split, c), text);
    }
  }
  static std::string Root() { return "UCI HAR Dataset/"; }
  static std::string Signal(const std::string& split, int channel) {
    return Root() + split + "/Inertial Signals/" + kSignals[channel] + "_" + split + ".txt";
  }
  void ExpectError(absl::StatusCode code, const std::string& words, const std::string& more) {
    const absl::Status status = data::LoadUciHar(folder_.path(), 1).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_THAT(std::string(status.message()), HasSubstr(more));
  }
  DataFolder folder_;
};

TEST_F(UciHar, ReadsAndStandardisesByTheTrainingSplit) {
  const auto splits = data::LoadUciHar(folder_.path(), 1);
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->size(), 3);
  EXPECT_EQ(splits->test->size(), 2);
  EXPECT_EQ(splits->train->sample_shape(), Shape({9, 128}));
  EXPECT_EQ(splits->train->classes(), 6);
  EXPECT_EQ(splits->train->label(0), 4);
  EXPECT_EQ(splits->test->label(1), 2);
  // Mean of a training channel: 10 c + 1; variance: 2/3 between the windows, 1 within.
  const float deviation = std::sqrt(5.0f / 3);
  std::vector<float> x(9 * 128);
  splits->train->CopySample(2, absl::MakeSpan(x));
  for (int c = 0; c < 9; ++c) {
    EXPECT_NEAR(x[c * 128], 2 / deviation, 1e-5);
    EXPECT_NEAR(x[c * 128 + 127], 0, 1e-5);
  }
  splits->test->CopySample(0, absl::MakeSpan(x));
  EXPECT_NEAR(x[5 * 128], 0, 1e-5);
  EXPECT_NEAR(x[5 * 128 + 1], -2 / deviation, 1e-5);
}

TEST_F(UciHar, TakesTheFolderItself) {
  EXPECT_TRUE(data::LoadUciHar(folder_.path() + "/UCI HAR Dataset", 1).ok());
}

TEST_F(UciHar, RefusesDamagedSignals) {
  const std::string file = Signal("train", 4);
  const std::string good = folder_.Read(file);
  folder_.Write(file, Window(4, 0, 128) + Window(4, 1, 127) + Window(4, 2, 128));
  ExpectError(absl::StatusCode::kInvalidArgument, "body_gyro_y_train.txt: line 2",
              "has 127 numbers, a window has 128");
  folder_.Write(file, Window(4, 0, 129) + Window(4, 1, 128) + Window(4, 2, 128));
  ExpectError(absl::StatusCode::kInvalidArgument, "line 1", "has 129 numbers");
  folder_.Write(file, Window(4, 0, 128) + Window(4, 1, 128));
  ExpectError(absl::StatusCode::kDataLoss, "body_gyro_y_train.txt", "holds 2 windows, but 3");
  folder_.Write(file, good + Window(4, 3, 128));
  ExpectError(absl::StatusCode::kInvalidArgument, "line 4", "one window more than the 3 labels");
  for (const char* bad : {"nan", "inf", "1e999", "1.0.0", "abc", "1e39"}) {
    std::string text = good;
    text.replace(2, 1, std::string(bad) + " ");
    folder_.Write(file, text);
    ExpectError(absl::StatusCode::kInvalidArgument, "line 1 ", "holds");
  }
  folder_.Remove(file);
  ExpectError(absl::StatusCode::kNotFound, "body_gyro_y_train.txt", "is missing");
}

TEST_F(UciHar, RefusesBadLabels) {
  const std::string file = Root() + "train/y_train.txt";
  folder_.Write(file, "5\n7\n6\n");
  ExpectError(absl::StatusCode::kInvalidArgument, "y_train.txt: line 2", "has label 7, not 1 to 6");
  folder_.Write(file, "0\n1\n6\n");
  ExpectError(absl::StatusCode::kInvalidArgument, "line 1", "label 0");
  folder_.Write(file, "1.5\n1\n6\n");
  ExpectError(absl::StatusCode::kInvalidArgument, "line 1", "label 1.5");
  folder_.Write(file, "1 1\n1\n6\n");
  ExpectError(absl::StatusCode::kInvalidArgument, "line 1", "more than one label");
  folder_.Write(file, "");
  ExpectError(absl::StatusCode::kInvalidArgument, "y_train.txt", "holds no labels");
}

TEST_F(UciHar, SaysHowToUnpack) {
  DataFolder packed;
  EXPECT_THAT(std::string(data::LoadUciHar(packed.path(), 1).status().message()),
              HasSubstr("no train/y_train.txt in " + packed.path()));
  packed.Write("ucihar-subset/ucihar-subset.tar.gz", "gz");
  const absl::Status status = data::LoadUciHar(packed.path(), 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("tar -xzf '" + packed.path() + "/ucihar-subset/ucihar-subset.tar.gz' -C ucihar"));
}

// The subset (2400/950), unpacked with the command that the message gives.
TEST(RealUciHar, UnpacksAndLoads) {
  if (!std::filesystem::is_directory(RealDataDir(RUNNEL_SOURCE_DIR) + "/ucihar-subset")) {
    GTEST_SKIP() << "skipped: no UCI-HAR subset in " << RealDataDir(RUNNEL_SOURCE_DIR);
  }
  absl::StatusOr<DatasetSplits> splits = data::LoadUciHar(RealDataDir(RUNNEL_SOURCE_DIR), 1);
  DataFolder unpacked;
  if (!splits.ok()) {
    UnpackAsTold(splits.status(), unpacked.path());
    splits = data::LoadUciHar(unpacked.path() + "/ucihar", 1);
  }
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_GE(splits->train->size(), 2400);
  EXPECT_GE(splits->test->size(), 950);
  std::vector<int64_t> counts(6, 0);
  for (int64_t i = 0; i < splits->train->size(); ++i) ++counts[splits->train->label(i)];
  for (int64_t count : counts) EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace runnel::ucihar_test
