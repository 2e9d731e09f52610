#include "central/display/run_history.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/central/display/shown_runs.h"

namespace runnel::run_history_test {
namespace {

TEST(LossCurve, KeepsTheWholeRunAndItsExtremes) {
  LossCurve curve;
  constexpr int64_t kSteps = 100'000;
  for (int64_t step = 1; step <= kSteps; ++step) curve.Add(step, step == 777 ? 50.0 : 1.0);
  const auto& points = curve.points();
  EXPECT_LE(points.size(), LossCurve::kMaxPoints);
  EXPECT_GE(points.size(), LossCurve::kMaxPoints / 2);
  EXPECT_EQ(points.front().step, 1);
  int64_t count = 0;
  double high = 0, sum = 0;
  for (const LossCurve::Point& point : points) {
    count += point.count;
    sum += point.mean * static_cast<double>(point.count);
    high = std::max(high, point.high);
    EXPECT_EQ(point.low, 1);
  }
  EXPECT_EQ(count, kSteps);
  EXPECT_EQ(high, 50);
  EXPECT_NEAR(sum, kSteps + 49, 1e-6);
}

TEST(LossCurve, StepsTrainedAgainReplaceThoseOfBefore) {
  LossCurve curve;
  for (int64_t step = 1; step <= 9; ++step) curve.Add(step, 1);
  curve.Add(5, 2);
  curve.Add(10, std::nan(""));
  EXPECT_EQ(curve.points().size(), 9u);
  curve.GoBackTo(4);
  curve.Add(5, 2);
  ASSERT_EQ(curve.points().size(), 5u);
  EXPECT_EQ(curve.points().back().mean, 2);
}

TEST(BusyHistory, SharesOfSlices) {
  BusyHistory history;
  RunView view = TwoStages();
  history.Add(view);
  view.training_ns = view.plan_ns = 1'000'000'000;
  history.Add(view);
  EXPECT_TRUE(history.slices().empty()) << "too short";
  view.training_ns = view.plan_ns = 4'000'000'000;
  view.stages[0].telemetry.busy_ns = 3'000'000'000;
  view.stages[0].telemetry.forward_times.Add(1'000'000'000);
  view.stages[0].telemetry.backward_times.Add(2'000'000'000);
  view.stages[1].telemetry.wait_ns = 1'000'000'000;
  // Who receives measures it.
  view.stages[1].telemetry.activation_times.Add(2'000'000'000);
  view.stages[0].telemetry.gradient_times.Add(400'000'000);
  history.Add(view);
  ASSERT_EQ(history.slices().size(), 1u);
  const BusyHistory::Slice& slice = history.slices()[0];
  EXPECT_EQ(slice.seconds, 4);
  EXPECT_EQ(slice.busy, (std::vector<double>{0.75, 0}));
  EXPECT_EQ(slice.forward, (std::vector<double>{0.25, 0}));
  EXPECT_EQ(slice.backward, (std::vector<double>{0.5, 0}));
  EXPECT_EQ(slice.wait, (std::vector<double>{0, 0.25}));
  EXPECT_EQ(slice.send, (std::vector<double>{0.5, 0.1}));
  // Another plan counts from nothing.
  view.plan.generation = Generation(2);
  view.plan_ns = 0;
  view.stages[0].telemetry = {};
  history.Add(view);
  EXPECT_EQ(history.slices().size(), 1u);
}

TEST(BusyHistory, IsBounded) {
  BusyHistory history;
  RunView view = TwoStages();
  for (int i = 0; i < 5000; ++i) {
    view.plan_ns += 2'000'000'000;
    view.training_ns += 2'000'000'000;
    view.stages[0].telemetry.busy_ns += 1'000'000'000;
    view.stages[0].telemetry.backward_times.Add(500'000'000);
    history.Add(view);
  }
  EXPECT_LE(history.slices().size(), BusyHistory::kMaxSlices);
  for (const BusyHistory::Slice& slice : history.slices()) {
    EXPECT_NEAR(slice.busy[0], 0.5, 1e-9);
    EXPECT_NEAR(slice.backward[0], 0.25, 1e-9);
  }
}

TEST(EventLog, ALineAboutAnEventIsTheEvent) {
  EventLog log;
  log.Add({EventKind::kLost, 4, "b is lost", "it closed its stream"});
  log.Add({EventKind::kWarning, 4, "worker b is lost: it closed its stream"});
  EXPECT_EQ(log.events().size(), 1u);
  log.Add({EventKind::kNote, 4, "layers move at step 4: saves 3 s"});
  log.Add({EventKind::kPlan, 4, "plan 2", "step 4: saves 3 s"});
  ASSERT_EQ(log.events().size(), 2u);
  EXPECT_EQ(log.events().back().kind, EventKind::kPlan);
  log.Add({EventKind::kWarning, 5, "something else"});
  EXPECT_EQ(log.events().size(), 3u);
}

TEST(EventLog, KeepsTheNewestOnesAndOneCheckpoint) {
  EventLog log;
  log.Add({EventKind::kLost, 1, "b is lost", "x"});
  for (int64_t i = 0; i < 300; ++i) log.Add({EventKind::kCheckpoint, i, "check-point"});
  EXPECT_EQ(log.events().size(), 2u);
  EXPECT_EQ(log.newest_checkpoint().step, 299);
  for (int64_t i = 0; i < 300; ++i) log.Add({EventKind::kNote, i, "note"});
  EXPECT_EQ(log.events().size(), EventLog::kMaxEvents);
  EXPECT_EQ(log.count(EventKind::kLost), 1);
  EXPECT_EQ(log.count(EventKind::kCheckpoint), 300);
  EXPECT_EQ(log.newest_checkpoint().step, 299) << "also when it is no event any more";
}

TEST(RunHistory, WhatWasEvaluatedAfterTheBarrierIsVoid) {
  RunHistory history;
  history.evaluations = {{10, 0.5, 1}, {20, 0.6, 1}};
  history.GoBackTo(15);
  ASSERT_EQ(history.evaluations.size(), 1u);
  EXPECT_EQ(history.evaluations[0].step, 10);
}

TEST(RunHistory, TheLastTwoPlans) {
  RunHistory history;
  for (int64_t generation = 1; generation <= 3; ++generation)
    history.AddPlan({generation, 0, "", "", {}});
  ASSERT_EQ(history.plans.size(), 2u);
  EXPECT_EQ(history.plans[0].generation, 3);
  EXPECT_EQ(history.plans[1].generation, 2);
}

}  // namespace
}  // namespace runnel::run_history_test
