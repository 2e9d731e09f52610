#include "central/run/recovery_times.h"

#include "gtest/gtest.h"

namespace runnel::recovery_times_test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
using Phase = RecoveryReached::Phase;

TEST(RecoveryTimes, EachPhaseCountsFromTheOneBefore) {
  RecoveryTimes times;
  times.Lose(kSecond / 4);
  EXPECT_EQ(times.Reach({Phase::kLost, 40, {"w1"}}, 10 * kSecond), "");
  EXPECT_EQ(times.Reach({Phase::kPlanned, 40, {"w1"}}, 11 * kSecond), "");
  // Another one is lost: planned again.
  EXPECT_EQ(times.Reach({Phase::kPlanned, 40, {"w1", "w2"}}, 13 * kSecond), "");
  EXPECT_EQ(times.Reach({Phase::kPrepared, 40, {"w1", "w2"}}, 17 * kSecond), "");
  EXPECT_EQ(times.summaries()[0].source, "central");
  EXPECT_FALSE(times.summaries()[0].first_gradient_s.has_value());
  EXPECT_EQ(times.Reach({Phase::kFirstGradient, 40, {"w1", "w2"}}, 25 * kSecond),
            "without w1, w2 the run goes on from step 40 after 15.00 s");
  EXPECT_EQ(times.Reach({Phase::kCaughtUp, 40, {"w1", "w2"}}, 41 * kSecond),
            "what was lost is trained again, 16.00 s later");
  ASSERT_EQ(times.summaries().size(), 1u);
  const RecoverySummary& one = times.summaries()[0];
  EXPECT_EQ(one.workers, (std::vector<std::string>{"w1", "w2"}));
  EXPECT_DOUBLE_EQ(*one.detect_s, 0.25);
  EXPECT_DOUBLE_EQ(*one.plan_s, 3);
  EXPECT_DOUBLE_EQ(*one.fetch_s, 4);
  EXPECT_DOUBLE_EQ(*one.first_gradient_s, 8);
  EXPECT_DOUBLE_EQ(*one.caught_up_s, 16);
  times.Lose(0);
  times.Reach({Phase::kLost, 80, {"w3"}, true}, 50 * kSecond);
  EXPECT_EQ(times.summaries()[1].source, "workers");
  EXPECT_EQ(times.summaries().size(), 2u);
  EXPECT_EQ(times.summaries()[1].step, 80);
}

}  // namespace
}  // namespace runnel::recovery_times_test
