// Runs end when evaluations bring no new best.

#include "central/run/machines/early_stop.h"

#include <cmath>

#include "gtest/gtest.h"

namespace runnel::early_stop_test {
namespace {

TEST(EarlyStopTest, CountsEvaluationsSinceTheBest) {
  EarlyStop stop(2, /*by_loss=*/false);
  stop.Add(10, {.accuracy = 0.5});
  stop.Add(20, {.accuracy = 0.5});
  EXPECT_FALSE(stop.is_due());
  EXPECT_TRUE(stop.MayBeDueAfter(1));
  stop.Add(30, {.accuracy = 0.6});
  EXPECT_FALSE(stop.MayBeDueAfter(1));
  stop.Add(40, {.accuracy = 0.55});
  EXPECT_FALSE(stop.is_due());
  stop.Add(50, {.accuracy = 0.6});
  EXPECT_TRUE(stop.is_due());
  EXPECT_FALSE(stop.WasDueBefore(50)) << "the run goes on to the barrier behind";
  EXPECT_TRUE(stop.WasDueBefore(60));
  stop.Add(60, {.accuracy = 0.7});  // too late
  EXPECT_TRUE(stop.is_due());
  stop.GoBackTo(40);
  EXPECT_FALSE(stop.is_due());
  stop.Add(50, {.accuracy = 0.7});
  EXPECT_FALSE(stop.is_due());
}

TEST(EarlyStopTest, TheFirstEvaluationOfAllIsABest) {
  const EarlyStop stop(1, /*by_loss=*/false);
  EXPECT_FALSE(stop.MayBeDueAfter(1));
  EXPECT_TRUE(stop.MayBeDueAfter(2));
  EXPECT_FALSE(EarlyStop().MayBeDueAfter(9));
}

TEST(EarlyStopTest, ByLossLessIsBetter) {
  EarlyStop stop(1, /*by_loss=*/true);
  stop.Add(1, {.loss = 2});
  stop.Add(2, {.loss = 1.5});
  EXPECT_FALSE(stop.is_due());
  stop.Add(3, {.loss = std::nan("")});
  EXPECT_TRUE(stop.is_due());
}

TEST(EarlyStopTest, StateGoesOn) {
  EarlyStop stop(3, /*by_loss=*/false);
  EXPECT_EQ(stop.StateAt(5), "");
  stop.Add(10, {.accuracy = 0.1});
  stop.Add(20, {.accuracy = 0.05});
  stop.Add(30, {.accuracy = 0.05});
  EarlyStop resumed(3, /*by_loss=*/false);
  ASSERT_TRUE(resumed.Restore(stop.StateAt(25)).ok());
  EXPECT_EQ(resumed.StateAt(25), stop.StateAt(25));
  resumed.Add(30, {.accuracy = 0.1});
  EXPECT_FALSE(resumed.is_due());
  resumed.Add(40, {.accuracy = 0.1});
  EXPECT_TRUE(resumed.is_due());
  for (const char* bad : {"x", "0.5", "0.5 -1", "0.5 x"}) EXPECT_FALSE(resumed.Restore(bad).ok());
}

TEST(EarlyStopTest, NeverWithoutPatience) {
  EarlyStop stop;
  stop.Add(1, {.accuracy = 0.5});
  stop.Add(2, {.accuracy = 0.4});
  EXPECT_FALSE(stop.is_due());
}

}  // namespace
}  // namespace runnel::early_stop_test
