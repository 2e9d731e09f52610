// Free memory, from files like Linux's own.

#include "proto/process/host_memory.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace runnel::host_memory_test {
namespace {

class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest()
      : root_(testing::TempDir() + "/host_memory_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
  }
  ~HostMemoryTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

constexpr char kMemory[] = "MemTotal:        8000 kB\nMemFree: 10 kB\nMemAvailable:    3000 kB\n";

TEST_F(HostMemoryTest, WhatTheHostHasLeft) {
  Write("/proc/meminfo", kMemory);
  EXPECT_EQ(AvailableMemoryBytes(root_), 3000 * 1024);
}

TEST_F(HostMemoryTest, TheTightestGroupCounts) {
  Write("/proc/meminfo", kMemory);
  Write("/proc/self/cgroup", "1:name=systemd:/x\n0::/pod/runnel\n");
  Write("/sys/fs/cgroup/pod/runnel/memory.max", "max\n");
  Write("/sys/fs/cgroup/pod/runnel/memory.current", "500000\n");
  Write("/sys/fs/cgroup/pod/memory.max", "2000000\n");
  Write("/sys/fs/cgroup/pod/memory.current", "600000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1400000);
  Write("/sys/fs/cgroup/pod/memory.current", "2600000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 0);
}

TEST_F(HostMemoryTest, NoLimitWhereNothingSaysSo) {
  EXPECT_EQ(AvailableMemoryBytes(root_), std::numeric_limits<int64_t>::max());
  Write("/proc/meminfo", "nonsense");
  Write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace runnel::host_memory_test
