#include "central/run/checkpoints/checkpoint_failures.h"

#include "gmock/gmock.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

CheckpointEnd Full(int64_t step) { return {step, absl::ResourceExhaustedError("no space"), ""}; }

TEST(CheckpointFailures, TheNextBarrierTriesAgainButNotForEver) {
  CheckpointFailures failures;
  std::string warning;
  for (int64_t step = 1; step < CheckpointFailures::kMost; ++step) {
    EXPECT_TRUE(failures.Add(Full(step), warning).ok());
    EXPECT_THAT(warning, HasSubstr("no space; training goes on"));
  }
  EXPECT_TRUE(failures.Add({5, absl::OkStatus(), "file"}, warning).ok());
  EXPECT_EQ(warning, "");
  for (int64_t step = 6; step < 5 + CheckpointFailures::kMost; ++step)
    EXPECT_TRUE(failures.Add(Full(step), warning).ok()) << step;
  const absl::Status ends = failures.Add(Full(10), warning);
  EXPECT_TRUE(absl::IsResourceExhausted(ends)) << ends;
  EXPECT_THAT(std::string(ends.message()), HasSubstr("at 5 barriers in a row"));
}

TEST(CheckpointFailures, WhatNoOtherBarrierMendsEndsTheRun) {
  std::string warning;
  for (const absl::Status& lasting :
       {absl::InvalidArgumentError("too large"), absl::AbortedError("another central")}) {
    CheckpointFailures failures;
    EXPECT_EQ(failures.Add({1, lasting, ""}, warning), lasting);
  }
  CheckpointFailures failures;
  failures.ExpectLast(20);
  EXPECT_TRUE(failures.Add(Full(10), warning).ok());
  EXPECT_FALSE(failures.Add(Full(20), warning).ok()) << "no barrier follows";
}

TEST(CheckpointFailures, OneThatIsLeftOutIsNoFailure) {
  CheckpointFailures failures;
  std::string warning;
  for (int64_t step = 1; step < 20; ++step)
    EXPECT_TRUE(failures.Add({step, absl::OkStatus(), ""}, warning).ok());
  EXPECT_THAT(warning, HasSubstr("still being written"));
}

}  // namespace
}  // namespace runnel
