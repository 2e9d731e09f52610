// Who may be brought together with whom.

#include "proto/transport/relay/relay_book.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport/relay/relay_hello.h"

namespace runnel::relay_book_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kCentral[] = "server/central";

// Stages a, b, c; central feeds a and c.
RelayPlan PlanOfThree(int32_t generation) {
  const auto token = [generation](char stage) { return std::to_string(generation) + stage; };
  return {Generation(generation),
          {{token('a'), ConnectionId(1), "worker/a", {kCentral}},
           {token('b'), ConnectionId(2), "worker/b", {"worker/a"}},
           {token('c'), ConnectionId(3), "worker/c", {"worker/b", kCentral}}}};
}

class RelayBookTest : public ::testing::Test {
 protected:
  RelayBookTest() { book_.Allow(PlanOfThree(1)); }
  RelayCallId Dial(const std::string& token, const std::string& from, const std::string& ticket) {
    return book_.Dial(token, from, from, ticket).value().call;
  }
  std::string WhyNot(const std::string& token, const std::string& from, const std::string& peer) {
    const auto wanted = book_.Dial(token, from, peer, "t");
    EXPECT_TRUE(absl::IsPermissionDenied(wanted.status())) << wanted.status();
    return std::string(wanted.status().message());
  }

  RelayBook book_;
};

TEST_F(RelayBookTest, ANeighbourIsBroughtTogetherWithItsStage) {
  const auto wanted = book_.Dial("1b", "worker/a", "worker/a", "ticket");
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(wanted->worker, ConnectionId(2));
  EXPECT_EQ(wanted->message.ticket, "ticket");
  EXPECT_EQ(wanted->message.from, "worker/a");
  EXPECT_FALSE(book_.IsThrough(wanted->call));
  EXPECT_EQ(book_.Answer("ticket", "worker/b").value(), wanted->call);
  EXPECT_TRUE(book_.IsThrough(wanted->call));
  EXPECT_EQ(book_.LinkOf(wanted->call), (RelayedLink{"worker/a", "worker/b", 0}));
  book_.End(wanted->call);
  EXPECT_FALSE(book_.IsThrough(wanted->call));
}

// Nobody's certificate says who is there, so nobody is told who it is.
TEST_F(RelayBookTest, WithoutCertificatesTheTokenAndTheTicketCount) {
  const auto wanted = book_.Dial("1c", kCentral, "", "ticket");
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(wanted->message.from, "");
  EXPECT_TRUE(book_.Answer("ticket", "").ok());
}

TEST_F(RelayBookTest, NobodyElseReachesAStage) {
  EXPECT_THAT(WhyNot("1x", "worker/a", "worker/a"), HasSubstr("no stage of this plan"));
  EXPECT_THAT(WhyNot("", "worker/a", "worker/a"), HasSubstr("no stage of this plan"));
  EXPECT_THAT(WhyNot("1c", "worker/a", "worker/a"), HasSubstr("no neighbour of worker/c"));
  EXPECT_THAT(WhyNot("1b", kCentral, kCentral), HasSubstr("no neighbour of worker/b"));
  EXPECT_THAT(WhyNot("1b", "worker/a", "worker/z"), HasSubstr("worker/z says to be worker/a"));
  EXPECT_THAT(WhyNot("1b", "a\x1b\n", ""), HasSubstr(R"(a\033\n is no neighbour)"));
}

TEST_F(RelayBookTest, ATicketCountsOnceAndForOne) {
  Dial("1b", "worker/a", "ticket");
  EXPECT_THAT(std::string(book_.Answer("ticket", "worker/c").status().message()),
              HasSubstr("worker/c shows a ticket that worker/b was given"));
  EXPECT_TRUE(absl::IsPermissionDenied(book_.Answer("", "worker/b").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(book_.Answer("other", "worker/b").status()));
  EXPECT_TRUE(book_.Answer("ticket", "worker/b").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(book_.Answer("ticket", "worker/b").status()));
}

TEST_F(RelayBookTest, OfAPlanThatHoldsNoMoreNothingIsLeft) {
  const RelayCallId through = Dial("1b", "worker/a", "one");
  ASSERT_TRUE(book_.Answer("one", "worker/b").ok());
  const RelayCallId waits = Dial("1c", "worker/b", "two");
  EXPECT_THAT(book_.Allow(PlanOfThree(2)), ElementsAre(through, waits));
  EXPECT_FALSE(book_.IsThrough(through));
  EXPECT_FALSE(book_.Answer("two", "worker/c").ok());
  EXPECT_THAT(WhyNot("1b", "worker/a", "worker/a"), HasSubstr("no stage of this plan"));
  EXPECT_NE(Dial("2b", "worker/a", "three"), through) << "a call's number is never used twice";
}

TEST_F(RelayBookTest, OnePlaceHasSoManyCallsAndNoMore) {
  RelayCallId last;
  for (size_t i = 0; i < RelayBook::kMostCallsOfAPlace; ++i)
    last = Dial("1b", "worker/a", "t" + std::to_string(i));
  EXPECT_TRUE(absl::IsUnavailable(book_.Dial("1b", "worker/a", "worker/a", "more").status()));
  EXPECT_TRUE(book_.Dial("1c", "worker/b", "worker/b", "other").ok());
  book_.End(last);
  EXPECT_TRUE(book_.Dial("1b", "worker/a", "worker/a", "again").ok());
}

TEST(RelayHelloTest, IsWhatWasSaid) {
  const RelayHello dial = ParseRelayHello(MakeRelayHello({false, "token", "worker/a"})).value();
  EXPECT_FALSE(dial.answers);
  EXPECT_EQ(dial.secret, "token");
  EXPECT_EQ(dial.from, "worker/a");
  const RelayHello answer = ParseRelayHello(MakeRelayHello({true, "ticket"})).value();
  EXPECT_TRUE(answer.answers);
  EXPECT_EQ(answer.secret, "ticket");
  EXPECT_EQ(answer.from, "");
  for (const RelayHello& broken :
       {RelayHello{false, ""}, RelayHello{false, "a\nb"}, RelayHello{false, "a", "b\nc"}}) {
    EXPECT_FALSE(ParseRelayHello(MakeRelayHello(broken)).ok());
  }
}

}  // namespace
}  // namespace runnel::relay_book_test
