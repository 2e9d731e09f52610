// What measuring ranges gives and refuses; how long they take is nobody's promise.

#include "worker/profiler.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "partition/zoo/zoo.h"
#include "proto/base/processor_time.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::vector<RangeTime>> Profile(const std::string& recipe, ProfileOptions options) {
  const std::unique_ptr<Backend> backend = MakeBackend("ref", 1).value();
  options.samples = 4;
  if (options.repetitions == 0) options.repetitions = 3;
  return ProfileRanges(MakeModel("lenet").value(), *FindRecipe(recipe).value(), *backend, options,
                       MonotonicClock());
}

void ExpectTimes(const absl::StatusOr<std::vector<RangeTime>>& times, size_t count) {
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), count);
  for (const RangeTime& time : *times) {
    EXPECT_GT(time.seconds, 0);
    EXPECT_GT(time.processor_seconds, 0);
    // Three measurements, and what is in all of them is in their median.
    EXPECT_GT(time.all_processor_seconds, time.processor_seconds);
    EXPECT_GT(time.all_wall_seconds, time.seconds);
  }
}

TEST(Profiler, EachLayerOrRangesWithMicroBatchesInFlight) {
  for (const char* recipe : {"fp32", "niti"}) {
    SCOPED_TRACE(recipe);
    ExpectTimes(Profile(recipe, {}), 6);
    ExpectTimes(Profile(recipe, {.ranges = {{0, 1}, {2, 5}, {3, 3}}}), 3);
    ExpectTimes(Profile(recipe, {.ranges = {{0, 1}, {2, 5}, {3, 3}}, .in_flight = {5, 1, 2}}), 3);
    ExpectTimes(
        Profile(recipe, {.ranges = {{0, 1}, {2, 5}}, .in_flight = {2, 1}, .shared_caches = true}),
        2);
  }
}

TEST(Profiler, WhatIsOutOfRangeIsNamed) {
  const auto error = [](const ProfileOptions& options) {
    return std::string(Profile("fp32", options).status().message());
  };
  EXPECT_THAT(error({.repetitions = -1}), HasSubstr("-1 repetitions"));
  EXPECT_THAT(error({.ranges = {{0, 6}}}), HasSubstr("layers 0 to 6: lenet has layers 0 to 5"));
  EXPECT_THAT(error({.ranges = {{0, 1}}, .in_flight = {0}}),
              HasSubstr("0 micro-batches in flight"));
  EXPECT_THAT(error({.ranges = {{0, 1}}, .in_flight = {1, 1}}),
              HasSubstr("1 ranges with micro-batches in flight for 2"));
}

// Until the calling thread has had so much more of a processor.
void Work(int64_t ns) {
  const int64_t until = ThreadProcessorNs() + ns;
  while (ThreadProcessorNs() < until) {
  }
}

TEST(ProcessorTime, CountsFromResumeToPause) {
  constexpr int64_t kWorkNs = 2'000'000;
  ProcessorTime time;
  time.Pause();
  Work(kWorkNs);
  EXPECT_EQ(time.ns(), 0);
  time.Resume();
  time.Resume();
  Work(kWorkNs);
  EXPECT_GE(time.ns(), kWorkNs);
  time.Pause();
  const int64_t passed = time.ns();
  EXPECT_GE(passed, kWorkNs);
  Work(kWorkNs);
  EXPECT_EQ(time.ns(), passed);
  time.Resume();
  Work(kWorkNs);
  EXPECT_GE(time.ns(), passed + kWorkNs);
}

}  // namespace
}  // namespace runnel
