// The threads of processors and runs over them. What would hang instead is caught by the time that
// a test may take.

#include "kernels/backends/mixed/lanes.h"

#include <latch>
#include <new>

#include "gtest/gtest.h"
#include "kernels/backends/lost_backend.h"

namespace runnel::lanes_test {
namespace {

TEST(Lanes, TasksOfOneProcessorRunInTheirOrderAndOfTwoAtTheSameTime) {
  Lanes lanes(3);
  std::latch both(2);
  std::vector<int> order;
  // Each waits for the other one to be under way.
  lanes.Post(1, [&] { both.arrive_and_wait(); });
  lanes.Post(2, [&] { both.arrive_and_wait(); });
  for (int i = 0; i < 5; ++i) lanes.Post(1, [&order, i] { order.push_back(i); });
  lanes.WaitIdle();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Lanes, AllTasksAreDoneWhenTheyGo) {
  int done = 0;
  {
    Lanes lanes(2);
    for (int i = 0; i < 100; ++i) lanes.Post(1, [&done] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(LaneRun, ATaskWaitsForThoseBeforeIt) {
  Lanes lanes(2);
  LaneRun run(3);
  std::vector<size_t> order;
  const auto note = [&order](size_t task) {
    order.push_back(task);
    return absl::OkStatus();
  };
  // Posted first, it waits for what runs here.
  lanes.Post(1, [&] { run.Do(1, {0}, [&] { return note(1); }); });
  run.Do(0, {}, [&] { return note(0); });
  run.Do(2, {1}, [&] { return note(2); });
  run.Wait(0, 3);
  lanes.WaitIdle();
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2}));
  EXPECT_TRUE(run.status().ok());
}

TEST(LaneRun, AFailureEndsWhatHasNotBegun) {
  Lanes lanes(3);
  LaneRun run(4);
  std::latch second_runs(1);
  bool third_ran = false;
  // One is under way while the other one fails; a lost backend counts more than an earlier error.
  lanes.Post(1, [&] {
    run.Do(0, {}, [&]() -> absl::Status {
      second_runs.wait();
      return absl::InternalError("the first");
    });
  });
  lanes.Post(2, [&] {
    run.Do(1, {}, [&]() -> absl::Status {
      second_runs.count_down();
      return MarkLostBackend(absl::UnavailableError("the second"), "warp");
    });
  });
  run.Do(2, {0, 1}, [&]() -> absl::Status {
    third_ran = true;
    return absl::OkStatus();
  });
  run.Do(3, {}, [&]() -> absl::Status {
    third_ran = true;
    return absl::OkStatus();
  });
  run.Wait(0, 4);
  EXPECT_FALSE(third_ran);
  EXPECT_EQ(run.status().message(), "the second");
  EXPECT_EQ(LostBackendOf(run.status()), "warp");
}

TEST(LaneRun, WhatIsWithdrawnNeverBeginsAndWhatHasBegunLeavesFirst) {
  Lanes lanes(3);
  LaneRun run(3);
  std::latch begun(1), withdrawn(1);
  bool left = false, second_ran = false;
  lanes.Post(1, [&] {
    run.Do(0, {}, [&] {
      begun.count_down();
      left = true;
      run.LeaveCallersMemory(0);
      withdrawn.wait();  // it goes on in memory of its own
      return absl::OkStatus();
    });
  });
  // Waits for a task that nobody runs, until it is withdrawn itself.
  lanes.Post(2, [&] {
    run.Do(1, {2}, [&] {
      second_ran = true;
      return absl::OkStatus();
    });
  });
  begun.wait();
  run.Withdraw(0, 3);
  EXPECT_TRUE(left);
  EXPECT_TRUE(run.has_begun(0));
  EXPECT_FALSE(run.has_begun(1));
  withdrawn.count_down();
  lanes.WaitIdle();
  run.Wait(0, 3);
  EXPECT_FALSE(second_ran);
}

TEST(LaneRun, MemoryThatEndsIsTheCallersToHandle) {
  Lanes lanes(2);
  LaneRun run(1);
  lanes.Post(1, [&] { run.Do(0, {}, []() -> absl::Status { throw std::bad_alloc(); }); });
  run.Wait(0, 1);
  EXPECT_THROW(run.status().IgnoreError(), std::bad_alloc);
}

}  // namespace
}  // namespace runnel::lanes_test
