// What a worker keeps of its measurements, and when it counts.

#include "worker/measure/measurement_store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/support/scratch.h"

namespace runnel::measurement_store_test {
namespace {

namespace fs = std::filesystem;

ProfileRequest Request(const char* model = "lenet") {
  ProfileRequest request;
  request.model = MakeModel(model).value();
  request.recipe = "fp32";
  request.backend = "auto";
  request.micro_batch_size = 8;
  request.repetitions = 5;
  request.ranges = {{0, 1}, {2, 5}};
  request.accepts_kept = true;
  return request;
}

const ProfileReport kReport{{0.25, 0.125}, {0.5, 0.75}, 0.375};

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

class MeasurementStoreTest : public ::testing::Test {
 protected:
  std::string TheFile() const { return fs::directory_iterator(folder())->path().string(); }
  std::string folder() const { return dir_ / "a/b"; }

  const ScratchDir dir_;
  const MeasurementStore store_{folder(), "device"};
};

TEST_F(MeasurementStoreTest, AnEqualRequestOfTheSameDeviceIsAnswered) {
  EXPECT_FALSE(store_.Find(Request()).has_value());
  ASSERT_TRUE(store_.Keep(Request(), kReport).ok());
  // Another process.
  std::optional<ProfileReport> found = MeasurementStore(folder(), "device").Find(Request());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->kept);
  EXPECT_EQ(found->layer_seconds, kReport.layer_seconds);
  EXPECT_EQ(found->spreads, kReport.spreads);
  EXPECT_EQ(found->processor_share, kReport.processor_share);
}

TEST_F(MeasurementStoreTest, WhatTimesDependOnIsPartOfTheQuestion) {
  ASSERT_TRUE(store_.Keep(Request(), kReport).ok());
  EXPECT_FALSE(MeasurementStore(folder(), "another").Find(Request()).has_value());
  EXPECT_FALSE(store_.Find(Request("vgg11")).has_value());
  const auto finds_after = [this](const auto& change) {
    ProfileRequest request = Request();
    change(request);
    return store_.Find(request).has_value();
  };
  EXPECT_FALSE(finds_after([](ProfileRequest& r) { r.micro_batch_size = 9; }));
  EXPECT_FALSE(finds_after([](ProfileRequest& r) { r.recipe = "niti"; }));
  EXPECT_FALSE(finds_after([](ProfileRequest& r) { r.backend = "ref"; }));
  EXPECT_FALSE(finds_after([](ProfileRequest& r) { r.ranges[1] = {3, 5}; }));
  EXPECT_FALSE(finds_after([](ProfileRequest& r) { r.in_flight = {1, 2}; }));
  EXPECT_FALSE(finds_after([](ProfileRequest& r) { r.neighbours = 2; }));
  EXPECT_TRUE(finds_after([](ProfileRequest& r) { r.accepts_kept = false; }));
}

TEST_F(MeasurementStoreTest, TheNewestAnswerCounts) {
  ASSERT_TRUE(store_.Keep(Request(), kReport).ok());
  ASSERT_TRUE(store_.Keep(Request(), ProfileReport{{1, 2}, {0, 0}, 1}).ok());
  EXPECT_EQ(store_.Find(Request())->layer_seconds, (std::vector<double>{1, 2}));
  EXPECT_EQ(FilesIn(folder()), 1u);
}

TEST_F(MeasurementStoreTest, DamagedFilesCountAsAbsent) {
  ASSERT_TRUE(store_.Keep(Request(), kReport).ok());
  fs::resize_file(TheFile(), 20);
  EXPECT_FALSE(store_.Find(Request()).has_value());
  std::ofstream(TheFile(), std::ios::binary) << std::string(1000, '\xff');
  EXPECT_FALSE(store_.Find(Request()).has_value());
  // Times that no worker could have told.
  ASSERT_TRUE(store_.Keep(Request(), ProfileReport{{-1, 2}, {0, 0}, 1}).ok());
  EXPECT_FALSE(store_.Find(Request()).has_value());
}

TEST_F(MeasurementStoreTest, OldFilesGoAndOthersStay) {
  fs::create_directories(folder());
  std::ofstream(folder() + "/notes.txt") << "mine";
  for (int i = 0; i < 300; ++i) {
    const std::string path = folder() + "/" + std::to_string(i) + ".measurement";
    std::ofstream(path) << i;
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1000 - i));
  }
  ASSERT_TRUE(store_.Keep(Request(), kReport).ok());
  EXPECT_EQ(FilesIn(folder()), 256u + 2);
  EXPECT_TRUE(fs::exists(folder() + "/notes.txt"));
  EXPECT_FALSE(fs::exists(folder() + "/43.measurement"));
  EXPECT_TRUE(fs::exists(folder() + "/44.measurement"));
  EXPECT_TRUE(store_.Find(Request()).has_value());
}

TEST_F(MeasurementStoreTest, AFolderThatCannotBeHadIsNamed) {
  std::ofstream(dir_ / "file") << "";
  const absl::Status status = MeasurementStore(dir_ / "file/x", "device").Keep(Request(), kReport);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(dir_ / "file/x"));
}

TEST(MeasurementStore, WithoutAFolderNothingIsKept) {
  const MeasurementStore store("", "device");
  EXPECT_TRUE(store.Keep(Request(), kReport).ok());
  EXPECT_FALSE(store.Find(Request()).has_value());
}

// Sets a variable as it was when it goes.
class RestoredVariable {
 public:
  explicit RestoredVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) value_ = value;
  }
  ~RestoredVariable() {
    if (value_.has_value()) {
      setenv(name_, value_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> value_;
};

TEST(DefaultStateFolder, TakesTheFirstThatIsSet) {
  const RestoredVariable home("HOME"), state("XDG_STATE_HOME"), ours("RUNNEL_STATE_DIR");
  setenv("HOME", "/home/pi", 1);
  unsetenv("XDG_STATE_HOME");
  unsetenv("RUNNEL_STATE_DIR");
  EXPECT_EQ(DefaultStateFolder(), "/home/pi/.local/state/runnel");
  setenv("XDG_STATE_HOME", "/var/x", 1);
  EXPECT_EQ(DefaultStateFolder(), "/var/x/runnel");
  setenv("RUNNEL_STATE_DIR", "/r", 1);
  EXPECT_EQ(DefaultStateFolder(), "/r");
  setenv("RUNNEL_STATE_DIR", "", 1);
  EXPECT_EQ(DefaultStateFolder(), "") << "asked to keep nothing";
}

}  // namespace
}  // namespace runnel::measurement_store_test
