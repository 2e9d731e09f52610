#include "partition/schedules/zb_h1.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/schedule.h"
#include "partition/simulator.h"

namespace runnel::zb_h1_test {
namespace {

using ::testing::ElementsAre;

const ScheduleRow& Row(absl::string_view name) { return **FindSchedule(name); }

// One step on equal stages with free links.
SimulatedRun Step(absl::string_view schedule, int stages, int64_t m, const StageTimes& times) {
  const ScheduleRow& row = Row(schedule);
  SimulatedPipeline pipeline;
  pipeline.stages.assign(stages, times);
  pipeline.links.resize(stages - 1);
  for (const StageOrder& order : StageOrders(row.deferred, row.caps(stages, m))) {
    pipeline.caps.push_back(order.cap);
    pipeline.deferred_weight_gradients.push_back(order.deferred_weight_gradients);
  }
  pipeline.micro_batches = m;
  pipeline.drain_every = m;
  return Simulate(pipeline).value();
}

TEST(ZbH1, StagesDeferWhatStage0HasMoreInFlight) {
  EXPECT_THAT(ZbH1Deferred({{4, 3, 2, 1}}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ZbH1Deferred({{2, 2, 2, 1}}), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(ZbH1Deferred({{7, 5, 3, 1}}), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(ZbH1Deferred({{1}}), ElementsAre(0));
}

// Figure 3 of the paper, with M = 6 instead of 8.
TEST(ZbH1, Picture) {
  const ScheduleRow& row = Row("zb_h1");
  EXPECT_EQ(PrintSchedule(StageOrders(row.deferred, row.caps(4, 6)), 6, 6, 6),
            "stage 0: F0 F1 F2 F3 B0/0 F4 B1/0 F5 B2/0 B3/0 B4/0 B5/0\n"
            "stage 1: F0 F1 F2 I0/0 F3 I1/0 W0/0 F4 I2/0 W1/0 F5 I3/0 W2/0 I4/0 W3/0 I5/0 W4/0 "
            "W5/0\n"
            "stage 2: F0 F1 I0/0 F2 I1/0 F3 I2/0 W0/0 F4 I3/0 W1/0 F5 I4/0 W2/0 I5/0 W3/0 W4/0 "
            "W5/0\n"
            "stage 3: F0 I0/0 F1 I1/0 F2 I2/0 F3 I3/0 W0/0 F4 I4/0 W1/0 F5 I5/0 W2/0 W3/0 W4/0 "
            "W5/0\n");
}

TEST(ZbH1, NoStageKeepsMoreThanTheFirstOneOf1F1B) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int64_t m = 1; m <= 12; ++m) {
      const ScheduleRow& row = Row("zb_h1");
      for (const StageOrder& order : StageOrders(row.deferred, row.caps(stages, m))) {
        int64_t kept = 0, most = 0;
        for (const ScheduledAction& action : StageActions(order, m, m, m)) {
          kept += action.action == Action::kForward ? 1 : 0;
          kept -= action.action == Action::kWeightGradient ? 1 : 0;
          most = std::max(most, kept);
        }
        EXPECT_EQ(most, Row("sync_1f1b").caps(stages, m)[0]);
      }
    }
  }
}

// 1F1B as it is here sends a gradient before it computes the weight-gradient, so its bubble is
// (N - 1)(F + I); published, with + W, it is three times as long as this one where F = I = W.
TEST(ZbH1, BubbleIsThatOfTheFormula) {
  std::mt19937_64 random(1);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int i = 0; i < 300; ++i) {
    const int stages = 1 + static_cast<int>(below(7));
    const int64_t m = stages + below(20);
    const int64_t weight = below(50);
    const StageTimes times{weight + below(30), weight + below(30), weight};
    SCOPED_TRACE(absl::StrCat(stages, " stages, M ", m, ", ", times.forward_ns, " ",
                              times.input_gradient_ns, " ", weight));
    const int64_t fill = (stages - 1) * (times.forward_ns + times.input_gradient_ns);
    EXPECT_EQ(Step("sync_1f1b", stages, m, times).total_ns, m * times.total_ns() + fill);
    EXPECT_EQ(Step("zb_h1", stages, m, times).total_ns,
              m * times.total_ns() + fill - (stages - 1) * weight);
  }
}

// Prints the table: shares of a step in which a stage computes, four equal stages, F = I = W.
TEST(ZbH1, BusyShareBeside1F1B) {
  const StageTimes times{1000, 1000, 1000};
  for (int64_t m : {4, 8, 16}) {
    const SimulatedRun one = Step("sync_1f1b", 4, m, times);
    const SimulatedRun zero = Step("zb_h1", 4, m, times);
    const auto share = [](const SimulatedRun& run) {
      return static_cast<double>(run.compute_busy_ns[0]) / static_cast<double>(run.total_ns);
    };
    std::printf("M %2d: busy %.3f sync_1f1b, %.3f zb_h1; bubble %d and %d micro-batch parts\n",
                static_cast<int>(m), share(one), share(zero),
                static_cast<int>(one.total_ns / 1000 - 3 * m),
                static_cast<int>(zero.total_ns / 1000 - 3 * m));
    EXPECT_EQ(one.total_ns, (3 * m + 6) * 1000);
    EXPECT_EQ(zero.total_ns, (3 * m + 3) * 1000);
  }
}

}  // namespace
}  // namespace runnel::zb_h1_test
