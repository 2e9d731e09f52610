#include "proto/transport/link/silence_watch.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace runnel::silence_watch_test {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;

// A peer that is heard every `every_ns`, and one who looks four times a second.
class SilenceWatchTest : public ::testing::Test {
 protected:
  SilenceWatchTest() { watch_.Connect(now_ns_); }
  void Hear(int64_t every_ns, int times) {
    for (int i = 0; i < times; ++i) {
      Pass(every_ns);
      watch_.Hear(now_ns_);
    }
  }
  // Lets time pass; what is found meanwhile is added up.
  void Pass(int64_t ns) {
    for (const int64_t end_ns = now_ns_ + ns; now_ns_ < end_ns;) {
      now_ns_ = std::min(now_ns_ + 250 * kMs, end_ns);
      const SilenceWatch::Finding finding = watch_.Look(now_ns_);
      new_ += finding.is_new ? 1 : 0;
      dead_ += finding.is_dead ? 1 : 0;
      last_ = finding;
    }
  }

  int64_t now_ns_ = 5 * kSecond;
  SilenceWatch watch_;
  SilenceWatch::Finding last_;
  int new_ = 0;
  int dead_ = 0;
};

TEST_F(SilenceWatchTest, SaysWithinTwoSecondsThatNothingComes) {
  Hear(250 * kMs, 20);
  EXPECT_EQ(new_, 0);
  Pass(SilenceWatch::kLeastNs);
  EXPECT_EQ(new_, 0);
  Pass(500 * kMs);
  EXPECT_EQ(new_, 1);
  EXPECT_EQ(last_.usual_ns, 250 * kMs);
  EXPECT_EQ(last_.silence_ns, SilenceWatch::kLeastNs + 500 * kMs);
  EXPECT_EQ(dead_, 0);
  Pass(60 * kSecond);
  EXPECT_EQ(new_, 1) << "once";
  EXPECT_EQ(dead_, 1) << "once";
}

TEST_F(SilenceWatchTest, SaysForHowLongWhenSomethingComes) {
  Hear(250 * kMs, 20);
  EXPECT_FALSE(watch_.Hear(now_ns_).has_value()) << "it was no silence";
  Pass(10 * kSecond);
  EXPECT_EQ(watch_.Hear(now_ns_), 10 * kSecond);
  EXPECT_FALSE(watch_.Hear(now_ns_).has_value());
  // The next one is found as soon.
  Hear(250 * kMs, 20);
  Pass(2 * kSecond);
  EXPECT_EQ(new_, 2);
}

// A link that holds seconds in its buffers.
TEST_F(SilenceWatchTest, WhoIsHeardRarelyMayBeSilentForLonger) {
  for (int i = 0; i < 16; ++i) {
    Hear(4 * kSecond, 1);
    Hear(6 * kSecond, 1);
  }
  new_ = 0;
  Pass(22 * kSecond);
  EXPECT_EQ(new_, 0);
  Pass(kSecond);
  EXPECT_EQ(new_, 1) << "median 6 s and 8 deviations of 2 s";
}

TEST_F(SilenceWatchTest, BeforeTheRhythmIsKnownNothingIsSaid) {
  watch_.Hear(now_ns_);
  Pass(100 * kSecond);
  EXPECT_EQ(new_ + dead_, 0);
}

// SIGSTOP, or a host that slept.
TEST_F(SilenceWatchTest, WhatItDidNotRunItselfIsNobodysSilence) {
  Hear(250 * kMs, 20);
  Pass(250 * kMs);
  now_ns_ += 30 * kSecond;
  Pass(kSecond);
  EXPECT_EQ(new_, 0);
  Pass(kSecond);
  EXPECT_EQ(new_, 1);
}

TEST_F(SilenceWatchTest, AConnectionIsDeadOnce) {
  Hear(250 * kMs, 20);
  watch_.Break();
  Pass(100 * kSecond);
  EXPECT_EQ(new_, 1);
  EXPECT_EQ(dead_, 0) << "there is none";
  EXPECT_EQ(watch_.Connect(now_ns_), 100 * kSecond);
  Pass(4 * kSecond);
  EXPECT_EQ(dead_, 1) << "nothing came on the next one either";
}

}  // namespace
}  // namespace runnel::silence_watch_test
