#include "central/run/checkpoints/checkpoint_failures.h"

#include "gmock/gmock.h"

namespace runnel::checkpoint_failures_test {
namespace {

using ::testing::HasSubstr;

CheckpointEnd Full(int64_t step) { return {step, absl::ResourceExhaustedError("no space"), ""}; }

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kPatience = CheckpointFailures::kPatienceNs;

TEST(CheckpointFailures, TheNextBarrierTriesAgainButNotForEver) {
  CheckpointFailures failures;
  std::string warning;
  // Barriers are a tenth of a second apart, and the disk is full for a minute.
  for (int64_t i = 0; i < 600; ++i) {
    EXPECT_TRUE(failures.Add(Full(i), i * kSecond / 10, warning).ok()) << i;
    EXPECT_EQ(warning.empty(), i > 0) << "one line";
  }
  EXPECT_TRUE(failures.Add({600, absl::OkStatus(), "file"}, 60 * kSecond, warning).ok());
  EXPECT_EQ(warning, "");
  const int64_t begin = 100 * kSecond;
  EXPECT_TRUE(failures.Add(Full(700), begin, warning).ok());
  EXPECT_THAT(warning, HasSubstr("no space; training goes on"));
  for (int64_t step = 701; step < 710; ++step)
    EXPECT_TRUE(failures.Add(Full(step), begin + kPatience - kSecond, warning).ok()) << step;
  const absl::Status ends = failures.Add(Full(710), begin + kPatience, warning);
  EXPECT_TRUE(absl::IsResourceExhausted(ends)) << ends;
  EXPECT_THAT(std::string(ends.message()), HasSubstr("at 11 barriers in a row for 10 minutes"));
}

// Barriers may be half an hour apart.
TEST(CheckpointFailures, SomeBarriersAreTriedHoweverLongTheyTake) {
  CheckpointFailures failures;
  std::string warning;
  for (int i = 1; i < CheckpointFailures::kLeast; ++i)
    EXPECT_TRUE(failures.Add(Full(i), i * 3 * kPatience, warning).ok()) << i;
  EXPECT_FALSE(failures.Add(Full(9), 30 * kPatience, warning).ok());
}

TEST(CheckpointFailures, WhatNoOtherBarrierMendsEndsTheRun) {
  std::string warning;
  for (const absl::Status& lasting :
       {absl::InvalidArgumentError("too large"), absl::AbortedError("another central")}) {
    CheckpointFailures failures;
    EXPECT_EQ(failures.Add({1, lasting, ""}, 0, warning), lasting);
  }
  CheckpointFailures failures;
  failures.ExpectLast(20);
  EXPECT_TRUE(failures.Add(Full(10), 0, warning).ok());
  EXPECT_FALSE(failures.Add(Full(20), 0, warning).ok()) << "no barrier follows";
}

TEST(CheckpointFailures, OneThatIsLeftOutIsNoFailure) {
  CheckpointFailures failures;
  std::string warning;
  for (const int64_t first : {1, 30}) {
    for (int64_t step = first; step < first + 20; ++step) {
      EXPECT_TRUE(failures.Add({step, absl::OkStatus(), ""}, 0, warning).ok());
      EXPECT_EQ(warning.empty(), step > first) << "one line";
    }
    EXPECT_TRUE(failures.Add({first + 20, absl::OkStatus(), "file"}, 0, warning).ok());
  }
}

}  // namespace
}  // namespace runnel::checkpoint_failures_test
