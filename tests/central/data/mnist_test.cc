#include "central/data/loaders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/data_scratch.h"

namespace runnel::mnist_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string BigEndian(uint32_t x) {
  return {static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8),
          static_cast<char>(x)};
}

std::string Images(uint32_t count) {
  std::string bytes = BigEndian(2051) + BigEndian(count) + BigEndian(28) + BigEndian(28);
  for (uint32_t i = 0; i < count * 784; ++i) bytes += static_cast<char>(i % 251);
  return bytes;
}

std::string Labels(const std::string& labels) {
  return BigEndian(2049) + BigEndian(static_cast<uint32_t>(labels.size())) + labels;
}

class Mnist : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write(kTrainImages, Images(3));
    folder_.Write(kTrainLabels, Labels({'\x05', '\x00', '\x09'}));
    folder_.Write(kTestImages, Images(2));
    folder_.Write(kTestLabels, Labels({'\x01', '\x02'}));
  }
  absl::StatusOr<DatasetSplits> Load() { return data::LoadMnist(folder_.path(), 1); }
  void ExpectError(absl::StatusCode code, const std::string& file, const std::string& words) {
    const absl::Status status = Load().status();
    EXPECT_EQ(status.code(), code) << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(file));
    EXPECT_THAT(message, HasSubstr(words));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }

  static constexpr char kTrainImages[] = "train-images-idx3-ubyte";
  static constexpr char kTrainLabels[] = "train-labels-idx1-ubyte";
  static constexpr char kTestImages[] = "t10k-images-idx3-ubyte";
  static constexpr char kTestLabels[] = "t10k-labels-idx1-ubyte";
  DataFolder folder_;
};

TEST_F(Mnist, ReadsPlainFiles) {
  const auto splits = Load();
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->size(), 3);
  EXPECT_EQ(splits->test->size(), 2);
  EXPECT_EQ(splits->train->sample_shape(), Shape({1, 28, 28}));
  EXPECT_EQ(splits->train->classes(), 10);
  EXPECT_EQ(splits->train->label(0), 5);
  EXPECT_EQ(splits->train->label(2), 9);
  std::vector<float> x(784);
  splits->train->CopySample(1, absl::MakeSpan(x));
  EXPECT_FLOAT_EQ(x[0], static_cast<float>((784 % 251 / 255.0 - 0.1307) / 0.3081));
  EXPECT_FLOAT_EQ(x[783], static_cast<float>((1567 % 251 / 255.0 - 0.1307) / 0.3081));
}

TEST_F(Mnist, ReadsGzipAndTheSubfolder) {
  const auto plain = Load();
  ASSERT_TRUE(plain.ok());
  DataFolder other;
  std::filesystem::create_directories(other.path() + "/mnist");
  for (const char* name : {kTrainImages, kTrainLabels, kTestImages}) {
    other.WriteGzip(std::string("mnist/") + name + ".gz", folder_.Read(name));
  }
  other.Write(std::string("mnist/") + kTestLabels, folder_.Read(kTestLabels));
  const auto packed = data::LoadMnist(other.path(), 1);
  ASSERT_TRUE(packed.ok()) << packed.status();
  std::vector<float> a(784);
  std::vector<float> b(784);
  for (int64_t i = 0; i < 3; ++i) {
    plain->train->CopySample(i, absl::MakeSpan(a));
    packed->train->CopySample(i, absl::MakeSpan(b));
    EXPECT_EQ(a, b);
    EXPECT_EQ(plain->train->label(i), packed->train->label(i));
  }
}

TEST_F(Mnist, NamesMissingFilesAndFolders) {
  folder_.Remove(kTestLabels);
  ExpectError(absl::StatusCode::kNotFound, kTestLabels, folder_.path());
  EXPECT_EQ(data::LoadMnist("", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(data::LoadMnist("", 1).status().message()), HasSubstr("--data-dir"));
  EXPECT_EQ(data::LoadMnist("/nowhere/at/all", 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Mnist, RefusesTruncatedFiles) {
  folder_.Write(kTrainImages, Images(3).substr(0, 16 + 2000));
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "ends after byte 2016, 352 bytes too");
  folder_.Write(kTrainImages, Images(3).substr(0, 11));
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "ends after byte 11");
  folder_.Write(kTrainImages, "");
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "ends after byte 0");
}

TEST_F(Mnist, RefusesATruncatedOrDamagedGzip) {
  folder_.WriteGzip(std::string(kTrainImages) + ".gz", Images(3));
  const std::string whole = folder_.Read(std::string(kTrainImages) + ".gz");
  folder_.Remove(kTrainImages);
  ASSERT_TRUE(Load().ok());
  folder_.Write(std::string(kTrainImages) + ".gz", whole.substr(0, whole.size() / 2));
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "gzip data is truncated or damaged");
  folder_.Write(std::string(kTrainImages) + ".gz", whole.substr(0, whole.size() - 3));
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "gzip data is truncated or damaged");
  std::string bad_crc = whole;
  bad_crc[whole.size() - 6] ^= 1;
  folder_.Write(std::string(kTrainImages) + ".gz", bad_crc);
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "damaged");
}

TEST_F(Mnist, RefusesAWrongHeader) {
  folder_.Write(kTrainImages, folder_.Read(kTrainLabels));
  ExpectError(absl::StatusCode::kInvalidArgument, kTrainImages, "magic number 2049");
  folder_.Write(kTrainImages, BigEndian(2051) + BigEndian(1) + BigEndian(32) + BigEndian(32) +
                                  std::string(1024, 'x'));
  ExpectError(absl::StatusCode::kInvalidArgument, kTrainImages, "images of 32x32");
  folder_.Write(kTrainImages, Images(3) + "x");
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "goes on after byte 2368");
  folder_.Write(kTrainImages, Images(2));
  ExpectError(absl::StatusCode::kInvalidArgument, kTrainImages, "holds 2 images");
  folder_.Write(kTrainLabels, Labels(""));
  ExpectError(absl::StatusCode::kInvalidArgument, kTrainLabels, "holds no labels");
}

TEST_F(Mnist, RefusesALabelOutOfRange) {
  folder_.Write(kTrainLabels, Labels({'\x05', '\x0a', '\x09'}));
  ExpectError(absl::StatusCode::kInvalidArgument, kTrainLabels, "label 1 (byte 9) is 10");
}

// 2^31 images would be 1.7 TB: the test would die if the header's word were taken for it.
TEST_F(Mnist, AHugeCountAllocatesNothing) {
  std::string images = Images(3);
  images.replace(4, 4, BigEndian(0x80000000u));
  folder_.Write(kTrainImages, images);
  ExpectError(absl::StatusCode::kDataLoss, kTrainImages, "ends after byte 2368");
  std::string labels = Labels({'\x05', '\x00', '\x09'});
  labels.replace(4, 4, BigEndian(0xFFFFFFFFu));
  folder_.Write(kTrainLabels, labels);
  ExpectError(absl::StatusCode::kDataLoss, kTrainLabels, "ends after byte 11");
}

TEST(RealMnist, LoadsWhole) {
  if (!std::filesystem::is_directory(RealDataDir(RUNNEL_SOURCE_DIR) + "/mnist")) {
    GTEST_SKIP() << "skipped: no MNIST in " << RealDataDir(RUNNEL_SOURCE_DIR)
                 << " (RUNNEL_DATA_DIR names another)";
  }
  const auto splits = data::LoadMnist(RealDataDir(RUNNEL_SOURCE_DIR), 1);
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->size(), 60000);
  EXPECT_EQ(splits->test->size(), 10000);
  EXPECT_EQ(splits->train->label(0), 5);
  EXPECT_EQ(splits->test->label(0), 7);
  // The normalisation is that of the training images. All of them: the writers alternate.
  double sum = 0;
  double squares = 0;
  std::vector<float> x(784);
  for (int64_t i = 0; i < 60000; ++i) {
    splits->train->CopySample(i, absl::MakeSpan(x));
    for (float value : x) {
      sum += value;
      squares += value * value;
    }
  }
  const double count = 60000.0 * 784;
  EXPECT_NEAR(sum / count, 0, 1e-3);
  EXPECT_NEAR(squares / count, 1, 1e-3);
}

}  // namespace
}  // namespace runnel::mnist_test
