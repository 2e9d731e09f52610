#include "proto/crypto/join_exchange.h"

#include "gtest/gtest.h"
#include "proto/crypto/certificate.h"
#include "proto/crypto/join_token.h"

namespace runnel::join_exchange_test {
namespace {

TEST(JoinToken, IsATextThatReadsBack) {
  const JoinToken token = NewJoinToken(std::string(32, '\xFE'));
  const std::string text = token.ToString();
  EXPECT_EQ(text.size(), 68u);
  EXPECT_EQ(ParseJoinToken(text).value(), token);
  const auto order = ParseJoinOrder(text + "@[::1]:7001");
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->token, token);
  EXPECT_EQ(order->address, "[::1]:7001");
}

TEST(JoinToken, AnythingElseIsRefused) {
  const std::string text = NewJoinToken(std::string(32, 'h')).ToString();
  for (const std::string& bad : {std::string(), text.substr(1), text.substr(0, 67), text + "A",
                                 "rj1-" + std::string(64, '!')})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJoinToken(bad).status())) << bad;
  for (const std::string& bad : {text, text + "@", std::string("x@127.0.0.1:7001")})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJoinOrder(bad).status())) << bad;
}

TEST(JoinRequest, ReadsBackAndIsShort) {
  const JoinRequest request{std::string(16, '\x01'), std::string(64, 'n'), std::string(64, 'o'),
                            NewRequest(NewKey().value()).value()};
  const std::string text = request.ToString();
  EXPECT_LE(text.size(), kMaxJoinRequestBytes);
  EXPECT_TRUE(IsWholeJoinRequest(text));
  EXPECT_FALSE(IsWholeJoinRequest(text.substr(0, text.size() - 1)));
  EXPECT_EQ(ParseJoinRequest(text).value(), request);
  const JoinRequest nameless{std::string(16, 's'), "", "", request.request_pem};
  EXPECT_EQ(ParseJoinRequest(nameless.ToString()).value(), nameless);
}

TEST(JoinRequest, AnythingElseIsRefused) {
  for (const std::string& bad :
       {std::string(), std::string("\n\n"), std::string("runnel-join 1\n\n\n"),
        "runnel-join 2\n" + std::string(32, '0') + "\nn \nx\n\n",
        "runnel-join 1\n" + std::string(32, 'g') + "\nn \nx\n\n",
        "runnel-join 1\n" + std::string(30, '0') + "\nn \nx\n\n",
        "runnel-join 1\n" + std::string(2000, '0') + "\n\n"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJoinRequest(bad).status())) << bad;
}

TEST(JoinReply, ReadsBack) {
  EXPECT_EQ(ParseJoinReply(JoinReply{7000, "pem\n"}.ToString()).value(),
            (JoinReply{7000, "pem\n"}));
  const auto refused = ParseJoinReply(JoinRefusal("the token \x1b has expired"));
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status()));
  EXPECT_EQ(refused.status().message(), "the token \\033 has expired");
  for (const char* bad : {"", "yes", "yes 0\n", "yes 70000\n", "yes x\n", "maybe\n"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJoinReply(bad).status())) << bad;
}

}  // namespace
}  // namespace runnel::join_exchange_test
