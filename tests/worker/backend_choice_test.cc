// What `--backend auto` takes, and why.

#include "worker/core/backend_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::backend_choice_test {
namespace {

TEST(BackendChoice, TheFastestIsTakenAndAllTimesAreSaid) {
  const BackendChoice choice =
      ChooseFastest({{"cpu", 0.010}, {"opencl", 0.008}, {"cpu,opencl", 0.007}});
  EXPECT_EQ(choice.name, "cpu,opencl");
  EXPECT_EQ(choice.reason,
            "backend auto takes cpu,opencl: a micro-batch takes cpu 10 ms (1.43x slower: left "
            "out); opencl 8 ms (1.14x slower: left out); cpu,opencl 7 ms");
  EXPECT_EQ(ChooseFastest({{"cpu", 0.010}, {"opencl", 0.150}}).name, "cpu");
}

TEST(BackendChoice, TheProcessorIsNotLeftForLittle) {
  const BackendChoice choice = ChooseFastest({{"cpu", 1}, {"opencl", 0.96}});
  EXPECT_EQ(choice.name, "cpu");
  EXPECT_THAT(choice.reason, testing::HasSubstr("opencl 960 ms (saves 4 %: too little)"));
  EXPECT_EQ(ChooseFastest({{"cpu", 1}, {"opencl", 0.94}}).name, "opencl");
  EXPECT_EQ(ChooseFastest({{"cpu", 1}, {"opencl", 0.94}, {"cpu,opencl", 0.93}}).name, "cpu,opencl");
}

TEST(BackendChoice, WhatCannotIsSaidAndNotTaken) {
  const absl::Status lost = absl::ResourceExhaustedError("no room");
  const BackendChoice choice = ChooseFastest({{"cpu", 0.010}, {"opencl", 0, lost}});
  EXPECT_EQ(choice.name, "cpu");
  EXPECT_THAT(choice.reason, testing::HasSubstr("; opencl cannot (no room)"));
  EXPECT_EQ(ChooseFastest({{"cpu", 0, lost}, {"opencl", 0.1}}).name, "opencl");
  EXPECT_EQ(ChooseFastest({{"cpu", 0, lost}, {"opencl", 0, lost}}).name, "cpu");
}

}  // namespace
}  // namespace runnel::backend_choice_test
