#include "central/data/loaders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/data/data_scratch.h"

namespace runnel::cifar10_test {
namespace {

using ::testing::HasSubstr;

// One record a label; pixel p of record r is (7 r + p) mod 256.
std::string Records(const std::string& labels) {
  std::string bytes;
  for (size_t r = 0; r < labels.size(); ++r) {
    bytes += labels[r];
    for (size_t p = 0; p < 3072; ++p) bytes += static_cast<char>((7 * r + p) % 256);
  }
  return bytes;
}

class Cifar10 : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("data_batch_1.bin", Records({'\x01', '\x02'}));
    folder_.Write("data_batch_2.bin", Records({'\x03'}));
    folder_.Write("data_batch_10.bin", Records({'\x04'}));
    folder_.Write("test_batch.bin", Records({'\x09', '\x00'}));
  }
  void ExpectError(absl::StatusCode code, const std::string& words, const std::string& more) {
    const absl::Status status = data::LoadCifar10(folder_.path(), 1).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_THAT(std::string(status.message()), HasSubstr(more));
  }
  DataFolder folder_;
};

TEST_F(Cifar10, ReadsAnyNumberOfBatchesInNumericOrder) {
  folder_.Write("data_batch_x.bin", "not one of them");
  const auto splits = data::LoadCifar10(folder_.path(), 1);
  ASSERT_TRUE(splits.ok()) << splits.status();
  ASSERT_EQ(splits->train->size(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(splits->train->label(i), i + 1);
  EXPECT_EQ(splits->test->size(), 2);
  EXPECT_EQ(splits->train->sample_shape(), Shape({3, 32, 32}));
  std::vector<float> x(3072);
  splits->train->CopySample(1, absl::MakeSpan(x));
  EXPECT_FLOAT_EQ(x[0], static_cast<float>((7 / 255.0 - .4914) / .247));
  EXPECT_FLOAT_EQ(x[1024 + 5], static_cast<float>((12 / 255.0 - .4822) / .243));
  EXPECT_FLOAT_EQ(x[3071], static_cast<float>((6 / 255.0 - .4465) / .261));
}

TEST_F(Cifar10, LooksIntoTheSubfolders) {
  for (const char* name : {"cifar10/", "cifar-10-batches-bin/"}) {
    DataFolder parent;
    parent.Write(std::string(name) + "data_batch_1.bin", Records({'\x01'}));
    parent.Write(std::string(name) + "test_batch.bin", Records({'\x02'}));
    EXPECT_TRUE(data::LoadCifar10(parent.path(), 1).ok()) << name;
  }
}

TEST_F(Cifar10, RefusesDamagedFiles) {
  folder_.Write("data_batch_2.bin", Records({'\x03'}).substr(0, 3000));
  ExpectError(absl::StatusCode::kDataLoss, "data_batch_2.bin", "has 3000 bytes");
  folder_.Write("data_batch_2.bin", "");
  ExpectError(absl::StatusCode::kDataLoss, "data_batch_2.bin", "has 0 bytes");
  folder_.Write("data_batch_2.bin", Records({'\x03', '\x0a'}));
  ExpectError(absl::StatusCode::kInvalidArgument, "data_batch_2.bin",
              "record 1 (byte 3073): label 10");
}

TEST_F(Cifar10, NamesWhatIsMissing) {
  folder_.Remove("test_batch.bin");
  ExpectError(absl::StatusCode::kNotFound, "test_batch.bin", folder_.path());
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_10.bin"}) {
    folder_.Remove(name);
  }
  ExpectError(absl::StatusCode::kNotFound, "no data_batch_N.bin", "--data-dir");
}

TEST_F(Cifar10, SaysHowToUnpack) {
  DataFolder packed;
  packed.Write("cifar10/data_batch_1.bin.xz", "xz");
  packed.Write("cifar10/test_batch.bin.xz", "xz");
  const absl::Status status = data::LoadCifar10(packed.path(), 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("for f in '" + packed.path() + "/cifar10'/*.bin.xz; do xz -dc"));
}

// Training on a part of the images must not happen by accident.
TEST_F(Cifar10, RefusesFilesThatAreStillPackedBesideOthers) {
  folder_.Write("data_batch_3.bin.xz", "xz");
  ExpectError(absl::StatusCode::kNotFound, "data_batch_3.bin.xz is still packed",
              "xz -dk '" + folder_.path() + "/data_batch_3.bin.xz'");
  folder_.Write("data_batch_3.bin", Records({'\x03'}));
  EXPECT_TRUE(data::LoadCifar10(folder_.path(), 1).ok());
}

// The command in the message is the one that works.
TEST(RealCifar10, UnpacksAndLoads) {
  if (!std::filesystem::is_directory(RealDataDir(RUNNEL_SOURCE_DIR) + "/cifar10") ||
      std::system("xz --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "skipped: no CIFAR-10 in " << RealDataDir(RUNNEL_SOURCE_DIR) << ", or no xz";
  }
  absl::StatusOr<DatasetSplits> splits = data::LoadCifar10(RealDataDir(RUNNEL_SOURCE_DIR), 1);
  DataFolder unpacked;
  if (!splits.ok()) {
    UnpackAsTold(splits.status(), unpacked.path());
    splits = data::LoadCifar10(unpacked.path(), 1);
  }
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->size(), 50000);
  EXPECT_EQ(splits->test->size(), 10000);
  EXPECT_EQ(splits->train->label(0), 6);  // the frog
  EXPECT_EQ(splits->test->label(0), 3);   // the cat
}

}  // namespace
}  // namespace runnel::cifar10_test
