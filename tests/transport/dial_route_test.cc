// Straight or by central: which way the next dial goes.

#include "proto/transport/relay/dial_route.h"

#include <string>

#include "gtest/gtest.h"

namespace runnel::dial_route_test {
namespace {

constexpr int64_t kMs = 1'000'000;

class DialRouteTest : public ::testing::Test {
 protected:
  // Ways of dials that are heard of by nobody, one letter each.
  std::string InVain(int dials, int64_t took_ns = kMs) {
    std::string ways;
    for (int i = 0; i < dials; ++i) ways += Dial(false, took_ns);
    return ways;
  }
  char Dial(bool heard, int64_t took_ns = kMs) {
    const DialRoute::Way way = route_.Next(now_ns_);
    const int64_t began_ns = now_ns_;
    now_ns_ += took_ns;
    if (heard) route_.Heard(way, now_ns_);
    route_.Ended(way, heard, began_ns, now_ns_);
    return way == DialRoute::Way::kStraight ? 's' : 'r';
  }

  DialRoute route_;
  int64_t now_ns_ = 1'000 * kMs;
};

TEST_F(DialRouteTest, StraightIsTriedFirstThenBothInTurn) { EXPECT_EQ(InVain(7), "ssrsrsr"); }

// Five seconds for each connection that nobody answers.
TEST_F(DialRouteTest, AnAddressThatSwallowsPacketsIsTriedOnce) {
  EXPECT_EQ(InVain(1, DialRoute::kSlowNs), "s");
  EXPECT_EQ(InVain(3), "rsr");
}

TEST_F(DialRouteTest, APeerThatSaysThatItIsNotReadyIsNoReasonToGoAround) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Dial(true), 's');
}

TEST_F(DialRouteTest, TheWayThatWorkedIsTheFirstChoice) {
  EXPECT_EQ(InVain(2), "ss");
  EXPECT_EQ(Dial(true), 'r');
  EXPECT_EQ(InVain(6), "rrsrsr");
  EXPECT_EQ(Dial(true), 's');
  EXPECT_EQ(InVain(3), "ssr");
}

// A slow dial by the second choice says nothing of the first one.
TEST_F(DialRouteTest, ASlowSecondChoiceLeavesTheTurns) {
  EXPECT_EQ(InVain(2), "ss");
  EXPECT_EQ(Dial(false, 5 * DialRoute::kSlowNs), 'r');
  EXPECT_EQ(InVain(2), "sr");
}

TEST_F(DialRouteTest, AfterAWhileStraightIsTriedAgain) {
  InVain(2);
  EXPECT_EQ(Dial(true), 'r');
  now_ns_ += DialRoute::kTrustNs - kMs;
  EXPECT_EQ(Dial(true), 'r');
  now_ns_ += DialRoute::kTrustNs + kMs;
  EXPECT_EQ(Dial(false), 's');
}

}  // namespace
}  // namespace runnel::dial_route_test
