// What Linux says of caches, from folders like its own.

#include "proto/base/host/caches.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace runnel::caches_test {
namespace {

class CachesTest : public testing::Test {
 protected:
  CachesTest() : folder_(testing::TempDir() + "/caches_" + Name()) {
    std::filesystem::remove_all(folder_);
  }
  ~CachesTest() override { std::filesystem::remove_all(folder_); }

  static std::string Name() {
    return testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  // First level instruction and data, second level.
  void AddCpu(int cpu, const std::string& size, const std::string& shared,
              const std::string& siblings) {
    const std::string caches = absl::StrCat("cpu", cpu, "/cache/index");
    Write(caches + "0/level", "1");
    Write(caches + "0/type", "Data");
    Write(caches + "0/size", "32K");
    Write(caches + "1/level", "2");
    Write(caches + "1/type", "Unified");
    Write(caches + "1/size", size);
    Write(caches + "1/shared_cpu_list", shared);
    Write(absl::StrCat("cpu", cpu, "/topology/thread_siblings_list"), siblings);
  }

  std::string folder_;
};

TEST_F(CachesTest, OneCacheForFourCores) {
  for (int cpu = 0; cpu < 4; ++cpu) AddCpu(cpu, "1024K", "0-3", absl::StrCat(cpu));
  EXPECT_EQ(ReadSecondLevelBytes(folder_), 256 << 10) << "a Raspberry Pi 4";
}

TEST_F(CachesTest, ThreadsOfACoreAreOneCore) {
  for (const int cpu : {0, 2}) AddCpu(cpu, "2M", "0,2", "0,2");
  for (const int cpu : {1, 3}) AddCpu(cpu, "2M", "1,3", "1,3");
  EXPECT_EQ(ReadSecondLevelBytes(folder_), 2 << 20);
}

TEST_F(CachesTest, TheSmallestCoreCounts) {
  AddCpu(0, "128K", "0", "0");
  AddCpu(1, "512K", "1", "1");
  EXPECT_EQ(ReadSecondLevelBytes(folder_), 128 << 10);
}

TEST_F(CachesTest, WhatCannotBeReadIsTheCacheOfTheTuning) {
  EXPECT_EQ(ReadSecondLevelBytes(folder_), kTunedSecondLevelBytes) << "no folder";
  for (const char* size : {"", "K", "-4K", "4", "99999999999999999999K", "64000M", "1024Kx"}) {
    AddCpu(0, size, "0", "0");
    EXPECT_EQ(ReadSecondLevelBytes(folder_), kTunedSecondLevelBytes) << size;
  }
  for (const char* shared : {"x", "3-1", "0-99999999", "-1"}) {
    AddCpu(0, "512K", shared, "0");
    EXPECT_EQ(ReadSecondLevelBytes(folder_), 512 << 10) << shared;
  }
}

TEST_F(CachesTest, OfThisMachine) {
  EXPECT_GE(SecondLevelBytes(), 1 << 16);
  AssumeSecondLevelBytes(12345678);
  EXPECT_EQ(SecondLevelBytes(), 12345678);
  AssumeSecondLevelBytes(0);
}

}  // namespace
}  // namespace runnel::caches_test
