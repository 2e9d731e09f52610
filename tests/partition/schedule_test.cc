#include "partition/schedule.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::schedule_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ScheduleRow& Row(absl::string_view name) {
  absl::StatusOr<const ScheduleRow*> row = FindSchedule(name);
  EXPECT_TRUE(row.ok()) << row.status();
  return **row;
}

struct GoldenCase {
  const char* schedule;
  int stages;
  int64_t micro_batches;  // a step
  int64_t total;
  int64_t drain_every;
};
constexpr GoldenCase kGolden[] = {
    {"async_1f1b", 3, 1, 8, 0}, {"async_1f1b", 4, 1, 10, 5}, {"async_1f1b", 1, 1, 4, 2},
    {"sync_1f1b", 3, 4, 8, 4},  {"sync_1f1b", 4, 2, 6, 2},   {"gpipe", 3, 4, 8, 4},
    {"gpipe", 2, 3, 7, 3},
};

TEST(Schedule, PictureEqualsTheGoldenFile) {
  for (const GoldenCase& c : kGolden) {
    const std::string path =
        absl::StrCat(RUNNEL_SOURCE_DIR, "/tests/golden/schedule_", c.schedule, "_n", c.stages, "_m",
                     c.micro_batches, "_total", c.total, "_drain", c.drain_every, ".txt");
    SCOPED_TRACE(path);
    std::ifstream file(path);
    ASSERT_TRUE(file.good());
    std::stringstream golden;
    golden << file.rdbuf();
    const ScheduleRow& row = Row(c.schedule);
    const std::vector<StageOrder> stages =
        StageOrders(row.deferred, row.caps(c.stages, c.micro_batches));
    EXPECT_EQ(PrintSchedule(stages, c.total, c.drain_every, c.micro_batches), golden.str());
  }
}

TEST(Schedule, Caps) {
  EXPECT_THAT(Row("async_1f1b").caps(3, 1), ElementsAre(3, 2, 1));
  EXPECT_THAT(Row("sync_1f1b").caps(4, 2), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(Row("sync_1f1b").caps(2, 8), ElementsAre(2, 1));
  EXPECT_THAT(Row("gpipe").caps(3, 5), ElementsAre(5, 5, 5));
}

TEST(Schedule, PictureTellsGradientsThatAreApart) {
  const StageOrder stages[] = {{2, 0}, {1, 2}};
  EXPECT_EQ(PrintSchedule(stages, 4, 4, 4),
            "stage 0: F0 F1 B0/0 F2 B1/0 F3 B2/0 B3/0\n"
            "stage 1: F0 I0/0 F1 I1/0 F2 I2/0 W0/0 F3 I3/0 W1/0 W2/0 W3/0\n");
  // A step for every micro-batch: weights are as old as the weight-gradients that have run.
  EXPECT_EQ(PrintSchedule({{1, 1}}, 4, 0, 1),
            "stage 0: F0 I0/0 F1 I1/0 W0/0 F2 I2/1 W1/0 F3 I3/2 W2/1 W3/2\n");
}

TEST(Schedule, DefaultsFollowTheDesign) {
  EXPECT_EQ(Row("async_1f1b").default_micro_batches, 1);
  EXPECT_FALSE(Row("async_1f1b").drains_each_step);
  for (absl::string_view name : {"sync_1f1b", "gpipe"}) {
    EXPECT_EQ(Row(name).default_micro_batches, 4);
    EXPECT_TRUE(Row(name).drains_each_step);
  }
}

// 1F1B's staleness (PipeDream): the forward of stage i of N misses the last N - 1 - i steps.
TEST(Schedule, StalenessOfAsync1f1bIsStagesBehind) {
  const int stages = 5;
  const std::vector<int64_t> caps = Row("async_1f1b").caps(stages, 1);
  for (int i = 0; i < stages; ++i) {
    for (const ScheduledAction& action : StageActions({caps[i]}, 40, 0, 1)) {
      EXPECT_EQ(action.version, std::max<int64_t>(0, action.sequence - (stages - 1 - i)))
          << "stage " << i << " sequence " << action.sequence;
    }
  }
}

TEST(Schedule, SynchronousBackwardsUseTheWeightsOfTheirStep) {
  for (absl::string_view name : {"sync_1f1b", "gpipe"}) {
    for (int64_t cap : Row(name).caps(4, 3)) {
      for (const ScheduledAction& action : StageActions({cap}, 12, 3, 3)) {
        EXPECT_EQ(action.version, action.sequence / 3);
      }
    }
  }
}

TEST(Schedule, UnknownNameListsTheSchedules) {
  const auto row = FindSchedule("zero_bubble");
  EXPECT_EQ(row.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(row.status().message(), HasSubstr("there are async_1f1b, sync_1f1b, gpipe"));
}

}  // namespace
}  // namespace runnel::schedule_test
