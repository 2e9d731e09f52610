#include "proto/crypto/authority.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crypto/join_token.h"
#include "tests/crypto/fake_time.h"
#include "tests/support/scratch.h"

namespace runnel::authority_test {
namespace {

using ::testing::HasSubstr;

class AuthorityTest : public testing::Test {
 protected:
  std::string Request() { return NewRequest(NewKey().value()).value(); }
  std::string Secret(const std::string& name = "", int64_t lifetime_s = kHour) {
    return authority_->NewToken(name, lifetime_s).value().secret;
  }
  absl::StatusOr<Identity> Redeem(const std::string& secret, const std::string& name) {
    return authority_->Redeem({secret, name, "", Request()});
  }
  CertificateInfo InfoOf(const absl::StatusOr<Identity>& identity) {
    return ReadCertificate(identity->certificate_pem).value();
  }

  FakeTime time_;
  ScratchDir scratch_;
  const std::string folder_ = scratch_ / "home";
  std::unique_ptr<Authority> authority_ = Authority::Create(folder_, time_.clock()).value();
};

TEST_F(AuthorityTest, IsMadeOnceAndKeptToItself) {
  EXPECT_TRUE(absl::IsAlreadyExists(Authority::Create(folder_, time_.clock()).status()));
  const auto none = Authority::Open(scratch_ / "none", time_.clock());
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("runnel-central init"));
  Secret();
  ASSERT_TRUE(Redeem(Secret(), "pi-1").ok());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    struct stat info = {};
    ASSERT_EQ(lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, entry.is_directory() ? 0700u : 0600u) << entry.path();
  }
}

TEST_F(AuthorityTest, CentralAndOperatorHaveIdentities) {
  const auto server = authority_->ServerIdentity();
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(InfoOf(server).subject, CentralSubject());
  EXPECT_EQ(InfoOf(ReadIdentity(authority_->operator_folder())).subject.role, Role::kOperator);
  EXPECT_TRUE(
      VerifySignature(server->certificate_pem, authority_->certificate_pem(), time_.now_s).ok());
}

TEST_F(AuthorityTest, CentralsCertificateIsRenewedInTime) {
  const std::string first = authority_->ServerIdentity()->certificate_pem;
  time_.now_s += 200 * kDay;
  EXPECT_EQ(Authority::Open(folder_, time_.clock()).value()->ServerIdentity()->certificate_pem,
            first);
  time_.now_s += 100 * kDay;
  EXPECT_NE(Authority::Open(folder_, time_.clock()).value()->ServerIdentity()->certificate_pem,
            first);
}

TEST_F(AuthorityTest, ATokenCertifiesOnce) {
  const std::string secret = Secret();
  const auto identity = Redeem(secret, "pi-1");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(InfoOf(identity).subject, (Subject{Role::kWorker, "pi-1"}));
  EXPECT_TRUE(authority_->Check(InfoOf(identity)).ok());
  const auto again = Redeem(secret, "pi-2");
  EXPECT_TRUE(absl::IsPermissionDenied(again.status())) << again.status();
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("used already"));
  const auto unknown = Redeem(std::string(16, 'x'), "pi-2");
  EXPECT_TRUE(absl::IsPermissionDenied(unknown.status()));
}

// A command and a run that goes on see the same folder.
TEST_F(AuthorityTest, TokensPassFromProcessToProcess) {
  const auto other = Authority::Open(folder_, time_.clock()).value();
  EXPECT_TRUE(other->Redeem({Secret(), "pi-1", "", Request()}).ok());
}

TEST_F(AuthorityTest, ATokenExpires) {
  const std::string secret = Secret("", kHour);
  time_.now_s += kHour;
  const auto late = Redeem(secret, "pi-1");
  EXPECT_TRUE(absl::IsPermissionDenied(late.status()));
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("expired"));
  // Old ones are removed some time later.
  time_.now_s += 2 * kDay;
  Secret();
  EXPECT_THAT(std::string(Redeem(secret, "pi-1").status().message()), HasSubstr("no such token"));
}

TEST_F(AuthorityTest, OfManyWhoShowATokenOneIsCertified) {
  const std::string secret = Secret();
  const std::string request = Request();
  std::atomic<int> certified{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      certified += authority_->Redeem({secret, "pi-1", "", request}).ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(certified, 1);
}

TEST_F(AuthorityTest, ABrokenRequestLeavesTheTokenGood) {
  const std::string secret = Secret();
  EXPECT_TRUE(absl::IsInvalidArgument(authority_->Redeem({secret, "pi-1", "", "x"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Redeem(secret, "a b").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Redeem(secret, "central").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Redeem(secret, "local-000").status()));
  EXPECT_TRUE(Redeem(secret, "pi-1").ok());
  EXPECT_FALSE(authority_->NewToken("central", kHour).ok());
  EXPECT_FALSE(authority_->NewToken("../x", kHour).ok());
}

TEST_F(AuthorityTest, ATokenForANameGivesThatName) {
  const std::string secret = Secret("pi-1");
  EXPECT_TRUE(absl::IsInvalidArgument(Redeem(secret, "pi-2").status()));
  const auto identity = Redeem(secret, "");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(InfoOf(identity).subject.name, "pi-1");
}

TEST_F(AuthorityTest, ANameIsTakenUntilATokenForItReplacesIt) {
  const auto first = Redeem(Secret(), "pi-1");
  ASSERT_TRUE(first.ok());
  // Names differ by more than the case of letters.
  const auto other = Redeem(Secret(), "PI-1");
  EXPECT_TRUE(absl::IsInvalidArgument(other.status()));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("token --name PI-1"));
  const auto second = Redeem(Secret("pi-1"), "pi-1");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(absl::IsPermissionDenied(authority_->Check(InfoOf(first))));
  EXPECT_TRUE(authority_->Check(InfoOf(second)).ok());
}

TEST_F(AuthorityTest, WhatIsRevokedCountsNoMore) {
  const CertificateInfo info = InfoOf(Redeem(Secret(), "pi-1"));
  const CertificateInfo other = InfoOf(Redeem(Secret(), "pi-2"));
  EXPECT_TRUE(absl::IsNotFound(authority_->Revoke("pi-3")));
  ASSERT_TRUE(authority_->Revoke("pi-1").ok());
  const auto running = Authority::Open(folder_, time_.clock()).value();
  EXPECT_TRUE(absl::IsPermissionDenied(running->Check(info)));
  EXPECT_TRUE(running->Check(other).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(running->Renew(info, Request()).status()));
  EXPECT_TRUE(Redeem(Secret(), "pi-1").ok()) << "the name is free again";
}

TEST_F(AuthorityTest, AWorkerRenewsBeforeItsTimeIsOver) {
  const CertificateInfo info = InfoOf(Redeem(Secret(), "pi-1"));
  EXPECT_FALSE(IsRenewalDue(info, time_.now_s + 50 * kDay));
  time_.now_s += 62 * kDay;
  EXPECT_TRUE(IsRenewalDue(info, time_.now_s));
  const auto renewed = authority_->Renew(info, Request());
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  const CertificateInfo next = ReadCertificate(*renewed).value();
  EXPECT_EQ(next.subject, info.subject);
  EXPECT_GT(next.not_after_s, info.not_after_s);
  time_.now_s += 60 * kDay;
  EXPECT_TRUE(absl::IsPermissionDenied(authority_->Check(info)));
  EXPECT_TRUE(authority_->Check(next).ok());
  ASSERT_TRUE(authority_->Revoke("pi-1").ok());
  EXPECT_FALSE(authority_->Check(next).ok());
}

TEST(IdentityFiles, AreKeptAndChecked) {
  FakeTime time;
  ScratchDir scratch;
  const auto authority = Authority::Create(scratch / "home", time.clock()).value();
  const Identity identity = authority->IssueLocal("local-000").value();
  EXPECT_EQ(ParseIdentity(identity.ToString())->certificate_pem, identity.certificate_pem);
  EXPECT_FALSE(ParseIdentity(identity.certificate_pem).ok());
  EXPECT_FALSE(ParseIdentity("").ok());
  const std::string folder = scratch / "state/identity";
  EXPECT_TRUE(absl::IsNotFound(ReadIdentity(folder).status()));
  ASSERT_TRUE(WriteIdentity(folder, identity).ok());
  EXPECT_EQ(ReadIdentity(folder)->key_pem, identity.key_pem);
  chmod((folder + "/identity.pem").c_str(), 0644);
  EXPECT_TRUE(absl::IsPermissionDenied(ReadIdentity(folder).status()));
}

}  // namespace
}  // namespace runnel::authority_test
