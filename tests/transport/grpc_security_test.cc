// Who may speak to whom over gRPC: certificates, roles, names, revocation, and the join secret of a
// host where nothing is encrypted.

#include "proto/transport/grpc/security/grpc_security.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crypto/authority.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/control/grpc_control_streams.h"
#include "proto/transport/grpc/control/grpc_members.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/grpc/security/grpc_renew.h"
#include "proto/transport/grpc/security/join_secret.h"
#include "proto/transport/link/address.h"
#include "tests/crypto/fake_time.h"
#include "tests/support/scratch.h"
#include "tests/transport/certified.h"
#include "tests/transport/closed_port.h"
#include "tests/transport/control_recorders.h"
#include "tests/transport/test_frames.h"

namespace runnel::grpc_security_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kAnyPort[] = "127.0.0.1:0";
constexpr int64_t kTimeoutMs = 20'000;
// For those that are not let in: nothing is heard of a handshake that fails.
constexpr int64_t kShortMs = 300;

// A cluster's authority, and what its members have.
class Cluster {
 public:
  Authority& authority() { return *authority_; }
  GrpcSecurity Server() {
    GrpcSecurity security = SecurityOf(authority_->ServerIdentity().value());
    security.check_peer = [this](const CertificateInfo& peer) { return authority_->Check(peer); };
    return security;
  }
  Identity Worker(const std::string& name) { return JoinedWorker(*authority_, name); }
  Identity Operator() { return ReadIdentity(authority_->operator_folder()).value(); }

 private:
  ScratchDir scratch_;
  std::unique_ptr<Authority> authority_ =
      Authority::Create(scratch_ / "home", SystemWallClock()).value();
};

class Waiter final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++frames_;
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = status;
    changed_.notify_all();
  }
  bool WaitForFrame() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return frames_ > 0; });
  }
  absl::Status WaitForClosed() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return closed_.has_value(); });
    return closed_.value_or(absl::InternalError("still open"));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int frames_ = 0;
  std::optional<absl::Status> closed_;
};

// A stage's data listener.
class Stage {
 public:
  explicit Stage(const GrpcSecurity& security)
      : transport_(MakeGrpcTransport({.security = security})) {
    listener_ = *transport_->Listen(kAnyPort, [this](std::shared_ptr<Connection> connection) {
      std::lock_guard<std::mutex> lock(mutex_);
      peers_.push_back(connection->peer());
      connections_.push_back(std::move(connection));
      return Accepted{&seen, {}};
    });
  }
  ~Stage() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      connections_.clear();
    }
    listener_.reset();
  }
  std::string address() const { return listener_->address(); }
  std::vector<std::string> peers() {
    std::lock_guard<std::mutex> lock(mutex_);
    return peers_;
  }

  Waiter seen;

 private:
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;
  std::vector<std::string> peers_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::unique_ptr<Listener> listener_;
};

// What becomes of a connection to the stage.
absl::Status DialResult(const GrpcSecurity& security, const Stage& stage, const std::string& peer) {
  const auto transport = MakeGrpcTransport({.security = security});
  Waiter waiter;
  const auto connection = transport->Dial({stage.address(), peer}, &waiter, {});
  if (!connection.ok()) return connection.status();
  return waiter.WaitForClosed();
}

TEST(GrpcDataSecurity, EitherEndProvesWhoItIs) {
  Cluster cluster;
  Stage stage(SecurityOf(cluster.Worker("pi-2")));
  const auto transport = MakeGrpcTransport({.security = SecurityOf(cluster.Worker("pi-1"))});
  Waiter waiter;
  const auto connection = *transport->Dial({stage.address(), "worker/pi-2"}, &waiter, {});
  ASSERT_TRUE(connection->Send(TestFrame(FrameKind::kInput, 1, 100)).ok());
  EXPECT_TRUE(stage.seen.WaitForFrame());
  EXPECT_EQ(stage.peers(), std::vector<std::string>{"worker/pi-1"});
}

TEST(GrpcDataSecurity, AFewMegabytesArriveWhole) {
  Cluster cluster;
  Stage stage(SecurityOf(cluster.Worker("pi-2")));
  const auto transport = MakeGrpcTransport({.security = cluster.Server()});
  Waiter waiter;
  const auto connection = *transport->Dial({stage.address(), "worker/pi-2"}, &waiter, {});
  ASSERT_TRUE(connection->Send(TestFrame(FrameKind::kInput, 1, 5'000'000)).ok());
  EXPECT_TRUE(stage.seen.WaitForFrame());
  EXPECT_EQ(stage.peers(), std::vector<std::string>{"server/central"});
}

TEST(GrpcDataSecurity, WhoIsNotMeantGetsNothing) {
  Cluster cluster, other;
  Stage stage(SecurityOf(cluster.Worker("pi-2")));
  const GrpcSecurity member = SecurityOf(cluster.Worker("pi-1"));
  EXPECT_TRUE(absl::IsUnavailable(DialResult(member, stage, "worker/pi-3")));
  EXPECT_TRUE(absl::IsUnavailable(DialResult(member, stage, "server/central")));
  // An empty name is the dialler's own.
  EXPECT_TRUE(absl::IsUnavailable(DialResult(member, stage, "")));
  EXPECT_TRUE(absl::IsInvalidArgument(DialResult(member, stage, "pi-2")));
  EXPECT_TRUE(
      absl::IsUnavailable(DialResult(SecurityOf(other.Worker("pi-1")), stage, "worker/pi-2")));
  EXPECT_TRUE(absl::IsUnavailable(DialResult({}, stage, "worker/pi-2")));
  EXPECT_TRUE(stage.peers().empty());
}

TEST(GrpcDataSecurity, AWorkerMayDialItself) {
  Cluster cluster;
  const GrpcSecurity security = SecurityOf(cluster.Worker("pi-1"));
  Stage stage(security);
  const auto transport = MakeGrpcTransport({.security = security});
  Waiter waiter;
  const auto connection = *transport->Dial(stage.address(), &waiter, {});
  ASSERT_TRUE(connection->Send(TestFrame(FrameKind::kInput, 1, 100)).ok());
  EXPECT_TRUE(stage.seen.WaitForFrame());
}

// Encrypted streams may leave the host.
TEST(GrpcDataSecurity, AnEncryptedListenerMayBeAnywhere) {
  Cluster cluster;
  const auto transport = MakeGrpcTransport({.security = SecurityOf(cluster.Worker("pi-1"))});
  const auto listener =
      transport->Listen("0.0.0.0:0", [](std::shared_ptr<Connection>) { return Accepted{}; });
  EXPECT_TRUE(listener.ok()) << listener.status();
}

class ControlSecurity : public testing::Test {
 protected:
  void Serve(GrpcSecurity security) {
    GrpcControlOptions options;
    options.security = std::move(security);
    options.orders.renew = [this](const CertificateInfo& worker, const std::string& request) {
      return cluster_.authority().Renew(worker, request);
    };
    options.orders.revoke = [this](const std::string& name) {
      return cluster_.authority().Revoke(name);
    };
    options.orders.members.pause = [](bool) { return absl::UnavailableError("the run begins"); };
    serving_ = MakeGrpcControl(options);
    control_ = serving_->Listen(kAnyPort, &seen_).value();
  }
  // Dials and says hello under this name; how the stream ended. Internal: it did not.
  absl::Status JoinResult(const GrpcSecurity& security, const std::string& name) {
    const auto transport = MakeGrpcControl({.security = security});
    WorkerRecorder seen;
    const auto worker = transport->Connect(control_->address(), kShortMs * 30, &seen);
    if (!worker.ok()) return worker.status();
    (*worker)->Send(HelloOf(name)).IgnoreError();
    return seen.WaitForClosed();
  }
  // A peer that never gets a connection.
  absl::Status ConnectResult(const GrpcSecurity& security) {
    const auto transport = MakeGrpcControl({.security = security});
    WorkerRecorder seen;
    return transport->Connect(control_->address(), kShortMs, &seen).status();
  }

  Cluster cluster_;
  CentralRecorder seen_;
  std::unique_ptr<ControlTransport> serving_;
  std::unique_ptr<CentralControl> control_;
};

TEST_F(ControlSecurity, AWorkerJoinsUnderItsCertificatesName) {
  Serve(cluster_.Server());
  const auto transport = MakeGrpcControl({.security = SecurityOf(cluster_.Worker("pi-1"))});
  WorkerRecorder seen;
  const auto worker = transport->Connect(control_->address(), kTimeoutMs, &seen);
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->Send(HelloOf("pi-1")).ok());
  EXPECT_TRUE(seen_.WaitForJoined(1).has_value());
}

TEST_F(ControlSecurity, AnotherNameOrRoleIsRefused) {
  Serve(cluster_.Server());
  const absl::Status name = JoinResult(SecurityOf(cluster_.Worker("pi-1")), "pi-2");
  EXPECT_TRUE(absl::IsPermissionDenied(name)) << name;
  EXPECT_THAT(std::string(name.message()), HasSubstr("says to be pi-2"));
  const absl::Status role = JoinResult(SecurityOf(cluster_.Operator()), "operator");
  EXPECT_TRUE(absl::IsPermissionDenied(role)) << role;
  EXPECT_EQ(seen_.joined(), 0u);
}

TEST_F(ControlSecurity, WithoutACertificateOfTheClusterNobodyGetsIn) {
  Serve(cluster_.Server());
  Cluster other;
  // An end in time is all that is seen of a handshake that failed.
  EXPECT_FALSE(ConnectResult(SecurityOf(other.Worker("pi-1"))).ok());
  EXPECT_FALSE(ConnectResult({}).ok());
  EXPECT_EQ(seen_.joined(), 0u);
}

TEST_F(ControlSecurity, AWorkerTakesNoOtherForItsCentral) {
  // A member of the cluster that listens like a central.
  Serve(SecurityOf(cluster_.Worker("pi-9")));
  EXPECT_TRUE(absl::IsUnavailable(ConnectResult(SecurityOf(cluster_.Worker("pi-1")))));
}

TEST_F(ControlSecurity, RevocationEndsTheStreamAndKeepsItsHolderOut) {
  Serve(cluster_.Server());
  const GrpcSecurity security = SecurityOf(cluster_.Worker("pi-1"));
  const auto transport = MakeGrpcControl({.security = security});
  WorkerRecorder seen;
  const auto worker = transport->Connect(control_->address(), kTimeoutMs, &seen).value();
  ASSERT_TRUE(worker->Send(HelloOf("pi-1")).ok());
  const std::optional<ConnectionId> id = seen_.WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  const absl::Status revoked =
      RevokeAt(control_->address(), SecurityOf(cluster_.Operator()), "pi-1", kTimeoutMs);
  ASSERT_TRUE(revoked.ok()) << revoked;
  EXPECT_TRUE(absl::IsPermissionDenied(seen_.WaitForGone(*id)));
  EXPECT_TRUE(absl::IsPermissionDenied(seen.WaitForClosed()));
  // Who sends meanwhile hears why as well, and dials no more.
  EXPECT_TRUE(absl::IsPermissionDenied(worker->Send(HelloOf("pi-1"))));
  const absl::Status again = JoinResult(security, "pi-1");
  EXPECT_TRUE(absl::IsPermissionDenied(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("was revoked"));
  EXPECT_TRUE(
      absl::IsPermissionDenied(RenewCertificate(control_->address(), security,
                                                NewRequest(NewKey().value()).value(), kTimeoutMs)
                                   .status()));
}

TEST_F(ControlSecurity, OrdersAreAnOperatorsAndRenewalsAWorkers) {
  Serve(cluster_.Server());
  const GrpcSecurity worker = SecurityOf(cluster_.Worker("pi-1"));
  const GrpcSecurity admin = SecurityOf(cluster_.Operator());
  const std::string request = NewRequest(NewKey().value()).value();
  const std::string address = control_->address();
  EXPECT_TRUE(absl::IsPermissionDenied(RevokeAt(address, worker, "pi-1", kTimeoutMs)));
  EXPECT_TRUE(absl::IsNotFound(RevokeAt(address, admin, "pi-7", kTimeoutMs)));
  EXPECT_TRUE(absl::IsInvalidArgument(RevokeAt(address, admin, "../x", kTimeoutMs)));
  EXPECT_TRUE(
      absl::IsPermissionDenied(RenewCertificate(address, admin, request, kTimeoutMs).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      RenewCertificate(address, worker, std::string(2000, 'x'), kTimeoutMs).status()));
  const auto renewed = RenewCertificate(address, worker, request, kTimeoutMs);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_EQ(ReadCertificate(*renewed)->subject.ToString(), "worker/pi-1");
}

// An operator hears whether nobody answers, and whatever is known of the reason.
TEST_F(ControlSecurity, ACentralThatRefusesAnswersAllTheSame) {
  Serve(cluster_.Server());
  const MemberCalls calls =
      MembersAt(control_->address(), SecurityOf(cluster_.Operator()), kTimeoutMs).value();
  const absl::Status drained = calls.drain("pi-1");
  EXPECT_TRUE(absl::IsFailedPrecondition(drained)) << drained;
  EXPECT_THAT(std::string(drained.message()), HasSubstr("this central takes no such orders"));
  const absl::Status paused = calls.pause(true);
  EXPECT_TRUE(absl::IsFailedPrecondition(paused)) << paused;
  EXPECT_THAT(std::string(paused.message()), HasSubstr(": the run begins"));
}

TEST_F(ControlSecurity, WhyNoCentralAnswersIsSaid) {
  Serve(cluster_.Server());
  Cluster other;
  const absl::Status stranger =
      MembersAt(control_->address(), SecurityOf(other.Operator()), kTimeoutMs).value().pause(true);
  EXPECT_TRUE(absl::IsUnavailable(stranger)) << stranger;
  EXPECT_THAT(std::string(stranger.message()), HasSubstr("andshake"));
  const ClosedPort closed;
  const absl::Status nobody =
      MembersAt(closed.address(), SecurityOf(cluster_.Operator()), kTimeoutMs).value().pause(true);
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
  EXPECT_THAT(std::string(nobody.message()), HasSubstr("Connection refused"));
}

// Nobody listens there: who dials before it looks hears after its patience that nobody answers.
TEST(OwnCertificate, ThatDoesNotHoldIsNamedBeforeAnybodyIsAsked) {
  const ScratchDir scratch;
  const auto old = Authority::Create(scratch / "home", [] { return kStart - 1500 * kDay; }).value();
  const GrpcSecurity admin = SecurityOf(ReadIdentity(old->operator_folder()).value());
  const GrpcSecurity worker = SecurityOf(JoinedWorker(*old, "pi-1"));
  const ClosedPort nobody;
  const std::string request = NewRequest(NewKey().value()).value();
  for (const absl::Status& refused : {MembersAt(nobody.address(), admin, kShortMs).status(),
                                      RevokeAt(nobody.address(), admin, "pi-1", kShortMs)}) {
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(
        std::string(refused.message()),
        AllOf(HasSubstr("the operator's certificate: certificate has expired; the clock here"),
              HasSubstr("folder `operator`")));
  }
  const absl::Status renewed =
      RenewCertificate(nobody.address(), worker, request, kShortMs).status();
  EXPECT_TRUE(absl::IsPermissionDenied(renewed)) << renewed;
  EXPECT_THAT(std::string(renewed.message()),
              HasSubstr("this device's certificate: certificate has expired; the clock here"));
}

TEST_F(ControlSecurity, AListenerTakesARenewedCertificateFromItsFolder) {
  ScratchDir scratch;
  ASSERT_TRUE(
      WriteIdentity(scratch / "server", cluster_.authority().ServerIdentity().value()).ok());
  GrpcSecurity security = cluster_.Server();
  security.identity = std::make_shared<IdentityHolder>(
      cluster_.authority().ServerIdentity().value(), scratch / "server");
  Serve(security);
  EXPECT_EQ(JoinResult(SecurityOf(cluster_.Worker("pi-1")), "pi-2").code(),
            absl::StatusCode::kPermissionDenied)
      << "spoken to, and refused for the name";
}

// Where nothing is encrypted.
class JoinSecret : public testing::Test {
 protected:
  JoinSecret() {
    server_.secrets_folder = scratch_ / "secrets";
    serving_ = MakeGrpcControl({.security = server_});
    control_ = serving_->Listen(kAnyPort, &seen_).value();
  }
  absl::Status JoinResult(const std::string& folder) {
    GrpcSecurity security;
    security.secrets_folder = folder;
    const auto transport = MakeGrpcControl({.security = security});
    WorkerRecorder seen;
    const size_t before = seen_.joined();
    auto worker = transport->Connect(control_->address(), kTimeoutMs, &seen).value();
    worker->Send(HelloOf("w")).IgnoreError();
    if (folder != server_.secrets_folder) return seen.WaitForClosed();
    return seen_.WaitForJoined(before + 1).has_value() ? absl::OkStatus()
                                                       : absl::InternalError("did not join");
  }

  ScratchDir scratch_;
  GrpcSecurity server_;
  CentralRecorder seen_;
  std::unique_ptr<ControlTransport> serving_;
  std::unique_ptr<CentralControl> control_;
};

TEST_F(JoinSecret, IsWhatTheSameUserCanRead) {
  EXPECT_TRUE(JoinResult(server_.secrets_folder).ok());
  const absl::Status none = JoinResult("");
  EXPECT_TRUE(absl::IsPermissionDenied(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("showed no join secret"));
  const int port = ParseAddress(control_->address())->port;
  ASSERT_TRUE(MakeJoinSecret(scratch_ / "guessed", port).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(JoinResult(scratch_ / "guessed")));
}

TEST_F(JoinSecret, LivesAsLongAsItsCentral) {
  const int port = ParseAddress(control_->address())->port;
  EXPECT_TRUE(ReadJoinSecret(server_.secrets_folder, port).ok());
  control_.reset();
  EXPECT_TRUE(absl::IsNotFound(ReadJoinSecret(server_.secrets_folder, port).status()));
}

// Who listens on a port cannot have a worker show what is for another.
// Its secret is gone before its port is free: whoever dials in between dials again.
TEST(Streams, OnesThatEndRefuseNobodyForGood) {
  Streams streams(GrpcControlOptions(), /*timers=*/nullptr, /*observer=*/nullptr);
  streams.RequireSecret("secret");
  const grpc::CallbackServerContext without;
  EXPECT_TRUE(absl::IsPermissionDenied(streams.CheckOperator(without)));
  streams.CloseAll();
  EXPECT_TRUE(absl::IsUnavailable(streams.CheckOperator(without)));
}

TEST_F(JoinSecret, AFileThatIsNotOursIsNotRead) {
  const std::string folder = scratch_ / "links";
  ASSERT_TRUE(MakePrivateFolder(folder).ok());
  const int port = ParseAddress(control_->address())->port;
  const std::string theirs = server_.secrets_folder + "/join-" + std::to_string(port);
  ASSERT_EQ(symlink(theirs.c_str(), (folder + "/join-1").c_str()), 0);
  EXPECT_FALSE(ReadJoinSecret(folder, 1).ok());
}

}  // namespace
}  // namespace runnel::grpc_security_test
