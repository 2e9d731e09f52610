// What measuring ranges gives and refuses; how long they take is nobody's promise.

#include "worker/measure/profiler.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "partition/zoo/zoo.h"
#include "proto/base/host/processor_time.h"

namespace runnel::profiler_test {
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

// Time that is given in advance: a clock on which each look takes a millisecond.
class SteppingClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_ns_ += 1'000'000; }

 private:
  mutable int64_t now_ns_ = 0;
};

TEST(Profiler, RepeatsUntilItHasEnoughAndTellsHowFarItIs) {
  const std::unique_ptr<Backend> backend = MakeBackend("ref", 1).value();
  ProfileOptions options{.samples = 1, .repetitions = 5, .ranges = {{0, 0}, {1, 2}}};
  const auto profile = [&](double enough_ms) {
    options.enough_ms = enough_ms;
    std::vector<double> shares;
    const auto times =
        ProfileRanges(MakeModel("lenet").value(), *FindRecipe("fp32").value(), *backend, options,
                      SteppingClock(), [&shares](double share) { shares.push_back(share); });
    EXPECT_TRUE(times.ok()) << times.status();
    EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
    EXPECT_DOUBLE_EQ(shares.back(), 1);
    return times->front();
  };
  // A measurement takes one step of the clock.
  EXPECT_NEAR(profile(0).all_wall_seconds, 0.005, 1e-9) << "all repetitions";
  EXPECT_NEAR(profile(2).all_wall_seconds, 0.002, 1e-9);
  EXPECT_NEAR(profile(100).all_wall_seconds, 0.005, 1e-9);
}

// Seconds of one layer of LeNet, of which every run takes one step of the clock.
double SecondsOfLayer(int layer, int64_t samples, double burst_ms, double enough_ms) {
  const std::unique_ptr<Backend> backend = MakeBackend("cpu", 1).value();
  const ProfileOptions options{.samples = samples,
                               .repetitions = 1,
                               .ranges = {{layer, layer}},
                               .in_flight = {1},
                               .burst_ms = burst_ms,
                               .enough_ms = enough_ms};
  const auto times = ProfileRanges(MakeModel("lenet").value(), *FindRecipe("fp32").value(),
                                   *backend, options, SteppingClock());
  EXPECT_TRUE(times.ok()) << times.status();
  return times.ok() ? times->front().seconds : 0;
}

TEST(Profiler, LongRunsAreMeasuredOnAQuarterOfTheSamples) {
  constexpr int kConv1 = 0, kConv2 = 2, kFc1 = 4;
  EXPECT_NEAR(SecondsOfLayer(kConv1, 64, 0.2, 1), 0.004, 1e-9) << "a run fills five bursts";
  EXPECT_NEAR(SecondsOfLayer(kConv1, 64, 0.2, 0), 0.001, 1e-9) << "all that was asked for";
  EXPECT_NEAR(SecondsOfLayer(kConv1, 64, 2, 1), 0.001, 1e-9) << "two runs fill a burst";
  EXPECT_NEAR(SecondsOfLayer(kConv1, 16, 0.2, 1), 0.001, 1e-9) << "few samples";
  EXPECT_NEAR(SecondsOfLayer(kFc1, 64, 0.2, 1), 0.001, 1e-9) << "the update counts";
  EXPECT_NEAR(SecondsOfLayer(kConv2, 64, 0.2, 1), 0.001, 1e-9) << "64 places share a parameter";
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

// Counts the forwards with the very weights of the forward before.
class UpdateWatcher final : public Backend {
 public:
  UpdateWatcher() : backend_(MakeBackend("auto", 1).value()) {}

  BackendTraits traits() const override {
    return {.name = backend_->name(), .numerics_class = backend_->numerics_class()};
  }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    absl::StatusOr<std::unique_ptr<Executable>> executable = backend_->Prepare(program);
    if (!executable.ok()) return executable.status();
    return std::make_unique<Watched>(*this, std::move(*executable), program.state.parameter_bytes);
  }
  int forwards() const { return forwards_; }
  int unchanged() const { return unchanged_; }

 private:
  class Watched final : public Executable {
   public:
    Watched(UpdateWatcher& watcher, std::unique_ptr<Executable> executable, int64_t bytes)
        : watcher_(watcher),
          executable_(std::move(executable)),
          parameters_(static_cast<size_t>(bytes)) {}

    absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
      if (part == Part::kForward) {
        const std::byte* parameters = bindings[Storage::kParameters];
        if (std::equal(parameters_.begin(), parameters_.end(), parameters)) ++watcher_.unchanged_;
        std::copy_n(parameters, parameters_.size(), parameters_.begin());
        ++watcher_.forwards_;
      }
      return executable_->Run(part, context, bindings);
    }

   private:
    UpdateWatcher& watcher_;
    std::unique_ptr<Executable> executable_;
    std::vector<std::byte> parameters_;
  };

  std::unique_ptr<Backend> backend_;
  int forwards_ = 0;
  int unchanged_ = 0;
};

// A millisecond later at every look.
class StridingClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_ns_ += 1'000'000; }

 private:
  mutable int64_t now_ns_ = 0;
};

// Integer training that fits its labels, or whose units have all died, has gradients of zero and
// less to do than in a training.
TEST(Profiler, LongIntegerBurstsDoNotComeToRest) {
  constexpr int kRuns = 1000;
  UpdateWatcher backend;
  const absl::StatusOr<std::vector<RangeTime>> times = ProfileRanges(
      MakeModel("lenet").value(), *FindRecipe("niti").value(), backend,
      {.samples = 4, .repetitions = 2, .ranges = {{0, 5}}, .burst_ms = kRuns / 2}, StridingClock());
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GE(backend.forwards(), kRuns);
  EXPECT_LT(backend.unchanged(), kRuns / 20);
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
}  // namespace runnel::profiler_test
