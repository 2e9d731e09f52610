#include "proto/crypto/join_door.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/crypto/join_client.h"
#include "tests/crypto/fake_time.h"
#include "tests/support/scratch.h"

namespace runnel::join_door_test {
namespace {

using ::testing::HasSubstr;

class JoinDoorTest : public testing::Test {
 protected:
  void Open(int64_t patience_ms = JoinDoor::kPatienceMs) {
    door_ = JoinDoor::Open({.authority = authority_.get(),
                            .refusals = &refusals_,
                            .host = "127.0.0.1",
                            .control_port = 7000,
                            .patience_ms = patience_ms})
                .value();
  }
  absl::StatusOr<Joined> Join(const JoinToken& token, const std::string& name) {
    return JoinCluster({.token = token,
                        .host = "127.0.0.1",
                        .port = door_->port(),
                        .name = name,
                        .timeout_ms = 20'000,
                        .now_s = time_.clock()});
  }
  // A plain TCP connection to the door.
  int Dial() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(door_->port()));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  // Reads until the door has closed it.
  static void ExpectClosed(int fd) {
    char bytes[512];
    while (recv(fd, bytes, sizeof(bytes), 0) > 0) {
    }
    close(fd);
  }

  FakeTime time_;
  ScratchDir scratch_;
  MonotonicClock clock_;
  NullLogger logger_;
  RefusalLog refusals_{&logger_, &clock_};
  std::unique_ptr<Authority> authority_ =
      Authority::Create(scratch_ / "home", time_.clock()).value();
  std::unique_ptr<JoinDoor> door_;
};

TEST_F(JoinDoorTest, ATokenBecomesACertificateOnce) {
  Open();
  const JoinToken token = authority_->NewToken("", kHour).value();
  const auto joined = Join(token, "pi-1");
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->control_port, 7000);
  EXPECT_EQ(joined->identity.authority_pem, authority_->certificate_pem());
  EXPECT_EQ(ReadCertificate(joined->identity.certificate_pem)->subject.ToString(), "worker/pi-1");
  const auto again = Join(token, "pi-2");
  EXPECT_TRUE(absl::IsPermissionDenied(again.status())) << again.status();
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("used already"));
}

// Nobody takes the wait for a hung program.
TEST_F(JoinDoorTest, WhereNobodyAnswersThatIsSaidOnce) {
  Open();
  const int port = door_->port();
  door_.reset();
  std::vector<std::string> lines;
  const auto none =
      JoinCluster({.token = authority_->NewToken("", kHour).value(),
                   .host = "127.0.0.1",
                   .port = port,
                   .timeout_ms = 1'500,
                   .tell = [&lines](const std::string& line) { lines.push_back(line); },
                   .now_s = time_.clock()});
  EXPECT_TRUE(absl::IsUnavailable(none.status())) << none.status();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr(absl::StrCat("nobody answers at 127.0.0.1, port ", port)));
}

TEST_F(JoinDoorTest, AnExpiredTokenIsRefused) {
  Open();
  const JoinToken token = authority_->NewToken("", kHour).value();
  time_.now_s += 2 * kHour;
  EXPECT_THAT(std::string(Join(token, "pi-1").status().message()), HasSubstr("expired"));
}

// The device does not even say the secret.
TEST_F(JoinDoorTest, ATokenOfAnotherClusterIsRefusedByTheDevice) {
  Open();
  const auto other = Authority::Create(scratch_ / "other", time_.clock()).value();
  const auto joined = Join(other->NewToken("", kHour).value(), "pi-1");
  EXPECT_TRUE(absl::IsPermissionDenied(joined.status())) << joined.status();
  EXPECT_THAT(std::string(joined.status().message()), HasSubstr("not that of the cluster"));
}

TEST_F(JoinDoorTest, SilentAndSlowPeersAreCutOff) {
  Open(/*patience_ms=*/50);
  ExpectClosed(Dial());
  const int slow = Dial();
  ASSERT_EQ(send(slow, "\x16\x03\x01", 3, MSG_NOSIGNAL), 3);  // the beginning of a greeting
  ExpectClosed(slow);
}

TEST_F(JoinDoorTest, RandomAndOversizedBytesAreCutOff) {
  Open();
  const std::string all_lengths(100'000, '\xFF');
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.0\r\n\r\n"), all_lengths, "\x16\x03\x01\xFF\xFF" + all_lengths}) {
    const int fd = Dial();
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ExpectClosed(fd);
  }
  EXPECT_TRUE(Join(authority_->NewToken("", kHour).value(), "pi-1").ok());
}

// Of those that say nothing the oldest goes: a device that has a token gets in.
TEST_F(JoinDoorTest, AThousandConnectionsKeepNobodyOut) {
  Open();
  std::vector<int> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(Dial());
  EXPECT_TRUE(Join(authority_->NewToken("", kHour).value(), "pi-1").ok());
  ExpectClosed(crowd.front());
  for (size_t i = 1; i < crowd.size(); ++i) close(crowd[i]);
}

TEST_F(JoinDoorTest, APortThatIsTakenIsNamed) {
  Open();
  const auto second = JoinDoor::Open({.authority = authority_.get(),
                                      .refusals = &refusals_,
                                      .host = "127.0.0.1",
                                      .port = door_->port()});
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
}

TEST(JoinClient, NobodyThereIsSaid) {
  // A port that was free a moment ago.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const auto joined = JoinCluster({.token = NewJoinToken(std::string(32, 'h')),
                                   .host = "127.0.0.1",
                                   .port = ntohs(address.sin_port),
                                   .timeout_ms = 10});
  EXPECT_TRUE(absl::IsUnavailable(joined.status())) << joined.status();
  close(fd);
}

}  // namespace
}  // namespace runnel::join_door_test
