#include "worker/core/rejoin_policy.h"

#include "gtest/gtest.h"
#include "tests/support/scratch.h"
#include "worker/membership/central_lives.h"

namespace runnel::rejoin_policy_test {
namespace {

TEST(RejoinPolicy, PausesGrowUntilCentralTakesTheWorker) {
  RejoinPolicy policy(/*once=*/false);
  const absl::Status nobody = absl::UnavailableError("no central answers");
  const RejoinPolicy::Next first = policy.After(nobody, false);
  EXPECT_FALSE(first.ends);
  EXPECT_EQ(first.line, "no central answers; dialling again");
  const RejoinPolicy::Next second = policy.After(nobody, false);
  EXPECT_EQ(second.pause_ms, 2 * first.pause_ms);
  EXPECT_EQ(second.line, "") << "said once";
  for (int i = 0; i < 50; ++i) EXPECT_LE(policy.After(nobody, false).pause_ms, 2000);
  EXPECT_EQ(policy.After(absl::UnavailableError("central is gone"), true).pause_ms, first.pause_ms);
}

TEST(RejoinPolicy, WhatAnotherDialWouldMeetAgainIsTheEnd) {
  RejoinPolicy policy(/*once=*/false);
  const absl::Status refused = absl::FailedPreconditionError("another release");
  EXPECT_EQ(policy.After(refused, false).status, refused);
  EXPECT_TRUE(policy.After(refused, false).ends);
  // Central took it: the next run may take it again.
  EXPECT_FALSE(policy.After(refused, true).ends);
  EXPECT_FALSE(policy.After(absl::OkStatus(), true).ends);
}

TEST(RejoinPolicy, OnceIsOnce) {
  RejoinPolicy policy(/*once=*/true);
  EXPECT_TRUE(policy.After(absl::OkStatus(), true).ends);
  const RejoinPolicy::Next full = policy.After(absl::ResourceExhaustedError("no seat"), false);
  EXPECT_TRUE(full.ends);
  EXPECT_EQ(full.status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RejoinPolicy, WhoWaitedWithoutARunDialsForTheOneThatBegins) {
  for (const bool once : {false, true}) {
    RejoinPolicy policy(once);
    for (int i = 0; i < 5; ++i) policy.After(absl::UnavailableError("no central answers"), false);
    const RejoinPolicy::Next next = policy.After(absl::OkStatus(), false);
    EXPECT_FALSE(next.ends);
    EXPECT_EQ(next.pause_ms, 100) << "not that of the vain dials";
    EXPECT_EQ(next.line, "a run begins; dialling again");
  }
}

// The central that waited may answer once more that it ends.
TEST(RejoinPolicy, OnceWaitsForTheRunItWasSentTo) {
  const absl::Status ends = absl::UnavailableError("central ends");
  RejoinPolicy policy(/*once=*/true);
  policy.After(absl::OkStatus(), false);
  EXPECT_FALSE(policy.After(ends, false).ends);
  EXPECT_FALSE(policy.After(ends, false).ends);
  EXPECT_TRUE(policy.After(absl::PermissionDeniedError("another user's"), false).ends);
  EXPECT_TRUE(policy.After(absl::UnavailableError("the run's central was lost"), true).ends);
  policy.After(absl::OkStatus(), false);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(policy.After(ends, false).ends) << i;
  EXPECT_TRUE(policy.After(ends, false).ends) << "no central came";
}

TEST(CentralLives, AWorkerThatIsStartedAgainObeysNoEarlierLife) {
  const ScratchDir dir;
  {
    CentralLives lives(dir / "lives");
    EXPECT_TRUE(lives.Admit("a run\nwith lines", 2));
    EXPECT_TRUE(lives.Admit("another", 1));
  }
  CentralLives lives(dir / "lives");
  EXPECT_FALSE(lives.Admit("a run\nwith lines", 1));
  EXPECT_TRUE(lives.Admit("a run\nwith lines", 2));
  EXPECT_TRUE(lives.Admit("another", 3));
  EXPECT_TRUE(CentralLives(dir / "nowhere/lives").Admit("another", 1)) << "nothing is kept";
}

}  // namespace
}  // namespace runnel::rejoin_policy_test
