// A driver that hangs is named, and the process ends. No test waits for a time: each for what the
// watch does.

#include "kernels/backends/opencl/device/driver_watch.h"

#include <future>
#include <mutex>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/device/session.h"
#include "tests/kernels/opencl/opencl_faults.h"

namespace runnel::opencl::driver_watch_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Lines of a watch, and a promise that its end keeps.
struct Heard {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::promise<void> said, ended;

  DriverWatchOptions Options(milliseconds patience, milliseconds stall) {
    return {patience, stall,
            [this](const std::string& line) {
              const std::lock_guard lock(mutex);
              lines.push_back(line);
              if (lines.size() == 1) said.set_value();
            },
            [this] { ended.set_value(); }};
  }
};

TEST(DriverWatchTest, ADriverThatHangsIsNamedAndThenEndsTheWorker) {
  Heard heard;
  {
    DriverWatch watch("Mali-G76", heard.Options(milliseconds(20), milliseconds(40)));
    const DriverWatch::Call call(watch, "clFinish");
    heard.ended.get_future().wait();
  }
  EXPECT_THAT(
      heard.lines,
      ElementsAre("the OpenCL driver of Mali-G76 has not answered for 0.02 s (clFinish); this "
                  "worker ends if it stays so (opencl.stall_s)",
                  "the OpenCL driver of Mali-G76 has not answered for 0.04 s (clFinish); this "
                  "worker ends; take --backend cpu, or a newer driver"));
}

TEST(DriverWatchTest, WithoutALimitItIsOnlyNamed) {
  Heard heard;
  {
    DriverWatch watch("PoCL", heard.Options(milliseconds(1), milliseconds(0)));
    const DriverWatch::Call call(watch, "clFinish");
    heard.said.get_future().wait();
  }
  EXPECT_THAT(heard.lines, ElementsAre(testing::HasSubstr("ends with its process alone")));
}

TEST(DriverWatchTest, CallsThatReturnAreNotSpokenOf) {
  Heard heard;
  {
    DriverWatch watch("Mali-G76", heard.Options(hours(1), hours(2)));
    for (int i = 0; i < 1000; ++i) const DriverWatch::Call call(watch, "clFinish");
  }
  EXPECT_THAT(heard.lines, IsEmpty());
}

// The process was stopped for an hour in each tick.
TEST(DriverWatchTest, TimeInWhichNobodyRanDoesNotCount) {
  Heard heard;
  std::promise<void> enough;
  DriverWatchOptions options = heard.Options(hours(1), hours(2));
  options.tick = milliseconds(1);
  options.now = [&enough, asked = 0]() mutable {
    if (++asked == 20) enough.set_value();
    return std::chrono::steady_clock::time_point(hours(asked));
  };
  options.end = [&enough] { enough.set_value(); };
  {
    DriverWatch watch("Mali-G76", options);
    const DriverWatch::Call call(watch, "clFinish");
    enough.get_future().wait();
  }
  EXPECT_THAT(heard.lines, IsEmpty());
}

TEST(DriverWatchDeathTest, ASessionWhoseDriverHangsEndsItsProcess) {
  if (!Session::Open({}).ok()) GTEST_SKIP() << "no OpenCL here";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto hang = [] {
    const auto session = Session::Open({.stall_seconds = 0.05});
    HangOnFinish();
    (*session)->Finish().IgnoreError();
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(kDriverHangs),
              "has not answered for 0.05 s .clFinish.; this worker ends; take --backend cpu");
}

TEST(DriverWatchTest, OnTheHostsProcessorAPartMayTakeLong) {
  DeviceInfo device;
  device.type = CL_DEVICE_TYPE_CPU;
  EXPECT_EQ(WatchOptionsOf({}, device).stall.count(), 0);
  EXPECT_EQ(WatchOptionsOf({.stall_seconds = 2}, device).stall, std::chrono::seconds(2));
  device.type = CL_DEVICE_TYPE_GPU;
  EXPECT_EQ(WatchOptionsOf({}, device).stall, std::chrono::seconds(150));
}

}  // namespace
}  // namespace runnel::opencl::driver_watch_test
