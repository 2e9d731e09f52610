#include "proto/transport/control/control_session.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::control_session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Again(ControlSession& session) {
  std::vector<std::string> again;
  while (const auto message = session.NextAgain()) again.push_back(*message);
  return again;
}

TEST(ControlSession, WhatThePeerHasNotGotLeavesAgain) {
  ControlSession session;
  for (const char* message : {"a", "b", "c", "d"}) session.Keep(message);
  EXPECT_THAT(Again(session), IsEmpty());
  ASSERT_TRUE(session.Acknowledge(1).ok());
  ASSERT_TRUE(session.Connect(2).ok());
  EXPECT_FALSE(session.sent_all());
  EXPECT_EQ(session.NextAgain(), "c");
  // It breaks again, in the middle of it; the peer has got what was under way.
  ASSERT_TRUE(session.Connect(2).ok());
  EXPECT_THAT(Again(session), ElementsAre("c", "d"));
  session.Keep("e");
  ASSERT_TRUE(session.Acknowledge(5).ok());
  EXPECT_EQ(session.kept_messages(), 0u);
  ASSERT_TRUE(session.Connect(5).ok());
  EXPECT_THAT(Again(session), IsEmpty());
}

TEST(ControlSession, WhatCannotBeIsRefused) {
  ControlSession session;
  session.Keep("a");
  session.Keep("b");
  EXPECT_FALSE(session.Acknowledge(3).ok());
  ASSERT_TRUE(session.Acknowledge(1).ok());
  EXPECT_FALSE(session.Acknowledge(0).ok()) << "it had more before";
  EXPECT_FALSE(session.Connect(0).ok()) << "what it had is not kept";
  ControlSession again;
  again.Keep("a");
  ASSERT_TRUE(again.Connect(0).ok());
  EXPECT_FALSE(again.Acknowledge(1).ok()) << "it has not left on this connection";
}

TEST(ControlSession, ThePeerIsToldNowAndThen) {
  ControlSession session;
  for (int64_t i = 1; i < ControlSession::kAckEvery; ++i) session.Take();
  EXPECT_FALSE(session.DueAck().has_value());
  session.Take();
  EXPECT_EQ(session.DueAck(), ControlSession::kAckEvery);
  EXPECT_FALSE(session.DueAck().has_value());
  for (int64_t i = 0; i < ControlSession::kAckEvery; ++i) session.Take();
  ASSERT_TRUE(session.Connect(0).ok());
  EXPECT_FALSE(session.DueAck().has_value()) << "a connection says it itself";
  EXPECT_EQ(session.received(), 2 * ControlSession::kAckEvery);
}

}  // namespace
}  // namespace runnel::control_session_test
