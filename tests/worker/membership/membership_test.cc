#include "worker/membership/membership.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/crypto/authority.h"
#include "proto/crypto/join_door.h"
#include "tests/crypto/fake_time.h"
#include "tests/support/scratch.h"
#include "worker/membership/certificate_keeper.h"
#include "worker/membership/find_central.h"

namespace runnel::membership_test {
namespace {

using ::testing::HasSubstr;

class MembershipTest : public testing::Test {
 protected:
  std::string Order(const std::string& name = "") {
    return authority_->NewToken(name, kHour)->ToString() +
           "@127.0.0.1:" + std::to_string(door_->port());
  }
  absl::StatusOr<Membership> JoinAs(const std::string& name, const std::string& token_name = "") {
    return Join(Order(token_name), name, "host-1", state_, 20'000);
  }

  ScratchDir scratch_;
  const std::string state_ = scratch_ / "state";
  MonotonicClock clock_;
  NullLogger logger_;
  RefusalLog refusals_{&logger_, &clock_};
  std::unique_ptr<Authority> authority_ =
      Authority::Create(scratch_ / "home", SystemWallClock()).value();
  std::unique_ptr<JoinDoor> door_ = JoinDoor::Open({.authority = authority_.get(),
                                                    .refusals = &refusals_,
                                                    .host = "127.0.0.1",
                                                    .control_port = 7000})
                                        .value();
};

TEST_F(MembershipTest, IsKeptFromJoinOn) {
  EXPECT_TRUE(absl::IsNotFound(ReadMembership(state_).status()));
  const auto joined = JoinAs("pi-1");
  ASSERT_TRUE(joined.ok()) << joined.status();
  const auto kept = ReadMembership(state_);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->central, "127.0.0.1:7000");
  EXPECT_EQ(kept->identity.key_pem, joined->identity.key_pem);
  EXPECT_EQ(ReadCertificate(kept->identity.certificate_pem)->subject.name, "pi-1");
}

TEST_F(MembershipTest, TheNameIsTheUsersOrTheTokensOrTheHosts) {
  const auto name_of = [](const absl::StatusOr<Membership>& membership) {
    return ReadCertificate(membership->identity.certificate_pem)->subject.name;
  };
  EXPECT_EQ(name_of(JoinAs("")), "host-1");
  EXPECT_EQ(name_of(JoinAs("", "pi-2")), "pi-2");
  EXPECT_EQ(name_of(JoinAs("pi-2", "pi-2")), "pi-2");
  EXPECT_THAT(std::string(JoinAs("pi-4", "pi-3").status().message()),
              HasSubstr("the token is for pi-3"));
}

TEST_F(MembershipTest, WithoutAStateFolderNoTokenIsUsedUp) {
  const std::string order = Order();
  EXPECT_TRUE(absl::IsFailedPrecondition(Join(order, "pi-1", "", "", 1000).status()));
  EXPECT_TRUE(Join(order, "pi-1", "", state_, 20'000).ok());
}

TEST_F(MembershipTest, TheCertificateIsRenewedWhenItIsDue) {
  const auto joined = JoinAs("pi-1");
  ASSERT_TRUE(joined.ok()) << joined.status();
  IdentityHolder holder(joined->identity, MembershipFolder(state_));
  const CertificateInfo first = holder.info();
  int asked = 0;
  const auto ask = [&](const std::string& request) {
    ++asked;
    return authority_->Renew(first, request);
  };
  ASSERT_TRUE(RenewIfDue(&holder, first.not_before_s, ask).ok());
  EXPECT_EQ(asked, 0);
  const int64_t late_s = first.not_after_s - kDay;
  ASSERT_TRUE(RenewIfDue(&holder, late_s, ask).ok());
  EXPECT_EQ(asked, 1);
  EXPECT_NE(holder.info().serial, first.serial);
  EXPECT_EQ(ReadMembership(state_)->identity.certificate_pem, holder.Get().certificate_pem);
}

TEST_F(MembershipTest, AnotherDevicesCertificateIsNotTaken) {
  IdentityHolder holder(JoinAs("pi-1")->identity, "");
  const CertificateInfo other = ReadCertificate(JoinAs("pi-2")->identity.certificate_pem).value();
  const CertificateInfo first = holder.info();
  const auto ask = [&](const std::string& request) { return authority_->Renew(other, request); };
  EXPECT_TRUE(absl::IsPermissionDenied(RenewIfDue(&holder, first.not_after_s - kDay, ask)));
  EXPECT_EQ(holder.info().serial, first.serial);
}

// A board without a clock of its own begins in another year.
TEST_F(MembershipTest, AWrongClockIsNamed) {
  IdentityHolder holder(JoinAs("pi-1")->identity, "");
  const auto ask = [](const std::string&) -> absl::StatusOr<std::string> {
    return absl::UnavailableError("asked");
  };
  constexpr int64_t kMidnight1999 = 915'148'800;
  EXPECT_EQ(RenewIfDue(&holder, kMidnight1999, ask).message(),
            "certificate: certificate is not yet valid; the clock here says 1999-01-01 00:00 UTC: "
            "set it if that is wrong");
}

// A program of that name, before all others, in the place of Avahi's.
class FakeAvahi {
 public:
  FakeAvahi(const ScratchDir& scratch, const std::string& script)
      : path_before_(std::getenv("PATH")) {
    const std::string folder = scratch / "bin", program = folder + "/avahi-browse";
    std::filesystem::create_directories(folder);
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    setenv("PATH", (folder + ":" + path_before_).c_str(), 1);
  }
  ~FakeAvahi() { setenv("PATH", path_before_.c_str(), 1); }

 private:
  const std::string path_before_;
};

std::string TokenOf(const std::string& order) { return order.substr(0, order.find('@')); }

TEST_F(MembershipTest, ATokenAloneFindsItsCentral) {
  // Another cluster's door is found first; it is not given the token.
  const auto other = Authority::Create(scratch_ / "other", SystemWallClock()).value();
  const auto other_door = JoinDoor::Open({.authority = other.get(),
                                          .refusals = &refusals_,
                                          .host = "127.0.0.1",
                                          .control_port = 7000})
                              .value();
  const auto line = [](int port) {
    return "echo '=;lo;IPv4;runnel;_runnel-join._tcp;local;h.local;192.0.2.7;" +
           std::to_string(port) + ";\"address=127.0.0.1\"'\n";
  };
  const FakeAvahi avahi(scratch_, line(other_door->port()) + line(door_->port()));
  const auto joined = Join(TokenOf(Order("pi-1")), "", "host-1", state_, 20'000);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(ReadMembership(state_)->central, "127.0.0.1:7000");
}

TEST_F(MembershipTest, WhereNoCentralAnnouncesItself) {
  const FakeAvahi avahi(scratch_, "echo '+;lo;IPv4;x;_runnel-join._tcp;local'");
  const auto joined = Join(TokenOf(Order()), "", "host-1", state_, 20'000);
  EXPECT_TRUE(absl::IsNotFound(joined.status())) << joined.status();
  EXPECT_THAT(std::string(joined.status().message()), HasSubstr("--join TOKEN@HOST:PORT"));
}

TEST_F(MembershipTest, WhereAvahiIsNot) {
  for (const auto& [code, what] : {std::pair("exit 127", "package avahi-utils"),
                                   std::pair("exit 1", "which does not run here")}) {
    const FakeAvahi avahi(scratch_, code);
    const auto joined = Join(TokenOf(Order()), "", "host-1", state_, 20'000);
    EXPECT_TRUE(absl::IsFailedPrecondition(joined.status())) << joined.status();
    EXPECT_THAT(std::string(joined.status().message()), HasSubstr(what));
  }
}

TEST_F(MembershipTest, WhatIsNoTokenIsNotLookedFor) {
  const FakeAvahi avahi(scratch_, "exit 127");
  EXPECT_TRUE(absl::IsInvalidArgument(Join("nonsense", "", "host-1", state_, 1000).status()));
}

TEST(FoundCentrals, LinesOfAvahi) {
  EXPECT_THAT(
      ParseFoundCentrals("+;eth0;IPv4;a;_runnel-join._tcp;local\n"
                         "=;eth0;IPv4;a;_runnel-join._tcp;local;a.local;192.168.1.10;7001;\n"
                         "=;eth0;IPv4;a;_runnel-join._tcp;local;a.local;192.168.1.10;7001;\n"
                         "=;eth0;IPv6;a;_runnel-join._tcp;local;a.local;fe80::1;7001;\n"
                         "=;eth0;IPv6;a;_runnel-join._tcp;local;a.local;fd00::1;7001;\n"
                         "=;eth0;IPv4;a;_runnel-join._tcp;local;a.local;192.168.1.10;0;\n"
                         "=;eth0;IPv4;b;_runnel-join._tcp;local;b.local;10.0.0.1;8001;"
                         "\"v=1\" \"address=192.168.1.11\"\n"
                         "=;eth0\n"),
      ::testing::ElementsAre("192.168.1.10:7001", "[fd00::1]:7001", "192.168.1.11:8001"));
}

}  // namespace
}  // namespace runnel::membership_test
