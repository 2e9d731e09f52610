// Central's relay over gRPC: who is let in, what becomes of a slow receiver, and which way links go
// by themselves. That it is a transport like any other is tests/conformance's business.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crypto/authority.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/link/link_shell.h"
#include "proto/transport/relay/relay_hello.h"
#include "proto/transport/relay/relay_transport.h"
#include "tests/crypto/fake_time.h"
#include "tests/support/scratch.h"
#include "tests/transport/certified.h"
#include "tests/transport/closed_port.h"
#include "tests/transport/control_recorders.h"
#include "tests/transport/test_frames.h"

namespace runnel::relay_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAnyPort[] = "127.0.0.1:0";
constexpr char kToken[] = "token";
constexpr char kNear[] = "worker/near";
constexpr char kFar[] = "worker/far";

// One end of a data connection.
class End final : public ConnectionObserver, public Awaited {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !held_; });
    frames_.push_back(std::move(frame));
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = status;
    ++ends_;
    changed_.notify_all();
  }
  // While it is held it takes nothing.
  void Hold(bool held) {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  bool WaitForFrames(size_t count) {
    return WaitFor([&] { return frames_.size() >= count; });
  }
  absl::Status WaitForClosed() {
    if (!WaitFor([&] { return closed_.has_value(); })) return absl::InternalError("still open");
    return *closed_;
  }
  // Of several connections.
  bool WaitForEnds(int count) {
    return WaitFor([&] { return ends_ >= count; });
  }
  std::vector<Frame> frames() {
    std::lock_guard<std::mutex> lock(mutex_);
    return frames_;
  }

 private:
  bool held_ = false;
  int ends_ = 0;
  std::vector<Frame> frames_;
  std::optional<absl::Status> closed_;
};

class Lines final : public Logger {
 public:
  void Log(Severity, absl::string_view line) override {
    std::lock_guard<std::mutex> lock(mutex_);
    lines_ += std::string(line) + "\n";
  }
  std::string lines() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::string lines_;
};

// Central, and worker "far", whom worker "near" may reach.
class Relay {
 public:
  explicit Relay(const GrpcSecurity& security = {}, const GrpcSecurity& worker_security = {},
                 int64_t hello_deadline_ms = 10'000) {
    GrpcControlOptions options;
    options.security = security;
    options.security.refusals = &refusals_;
    options.hello_deadline_ms = hello_deadline_ms;
    control_ = MakeGrpcControl(options);
    central_ = control_->Listen(kAnyPort, &joins_).value();
    worker_control_ = MakeGrpcControl({.security = worker_security});
    stream_ = worker_control_->Connect(central_->address(), 20'000, &far_).value();
    EXPECT_TRUE(stream_->Send(HelloOf("far")).ok());
    far_id_ = joins_.WaitForJoined(1).value();
    Allow(1);
  }
  ~Relay() {
    stream_.reset();
    central_.reset();
  }

  void Allow(int32_t generation) {
    central_->AllowRelay({Generation(generation), {{kToken, far_id_, kFar, {kNear}}}});
  }
  // What the worker was told, so far at least so many times.
  std::vector<RelayWanted> Wanted(size_t count) {
    EXPECT_TRUE(far_.WaitForMessages(count));
    std::vector<RelayWanted> wanted;
    for (const CentralMessage& message : far_.messages())
      wanted.push_back(std::get<RelayWanted>(message));
    return wanted;
  }
  std::vector<RelayWanted> WantedSoFar() { return Wanted(0); }
  std::string address() const { return central_->address(); }
  CentralControl& central() { return *central_; }
  std::string refused() { return lines_.lines(); }
  // Sends on a connection of its own until the relay ends it; how.
  std::string EndOf(const Frame& frame, const GrpcSecurity& security = {}) {
    const auto transport = MakeGrpcTransport({.security = security});
    End end;
    const auto connection =
        transport->Dial({address(), security.encrypts() ? "server/central" : ""}, &end, {});
    EXPECT_TRUE(connection.ok()) << connection.status();
    (*connection)->Send(frame).IgnoreError();
    return std::string(end.WaitForClosed().message());
  }

 private:
  Lines lines_;
  MonotonicClock clock_;
  RefusalLog refusals_{&lines_, &clock_};
  CentralRecorder joins_;
  ConnectionId far_id_;
  WorkerRecorder far_;
  std::unique_ptr<ControlTransport> control_;
  std::unique_ptr<ControlTransport> worker_control_;
  std::unique_ptr<CentralControl> central_;
  std::unique_ptr<WorkerControl> stream_;
};

Frame Wants(const std::string& token = kToken, const std::string& from = kNear) {
  return MakeRelayHello({false, token, from});
}

TEST(RelayTest, StrangersAreRefusedAndNothingIsAskedForThem) {
  Relay relay;
  EXPECT_THAT(relay.EndOf(TestFrame(FrameKind::kActivation, 0, 100)), HasSubstr("is no hello"));
  EXPECT_THAT(relay.EndOf(TestFrame(FrameKind::kActivation, 0, size_t{8} << 20)),
              HasSubstr("too long for a hello"));
  EXPECT_THAT(relay.EndOf(MakeHello({kToken, "link"})), HasSubstr("is no hello to a relay"));
  EXPECT_THAT(relay.EndOf(Wants(std::string(2000, 'x'))), HasSubstr("too long for a hello"));
  EXPECT_THAT(relay.EndOf(Wants("another")), HasSubstr("no stage of this plan"));
  EXPECT_THAT(relay.EndOf(Wants(kToken, "worker/z")), HasSubstr("no neighbour of worker/far"));
  EXPECT_THAT(relay.EndOf(MakeRelayHello({true, "ticket"})), HasSubstr("nobody waits"));
  Frame damaged = Wants();
  damaged.header.payload_crc ^= 1;
  EXPECT_THAT(relay.EndOf(damaged), HasSubstr("CRC"));
  Frame lies = Wants();
  lies.header.payload_bytes += uint64_t{900} << 20;
  EXPECT_THAT(relay.EndOf(lies), HasSubstr("payload"));
  EXPECT_THAT(relay.central().RelayedLinks(), IsEmpty());
  EXPECT_THAT(relay.refused(), HasSubstr("control stream: relay: no stage of this plan"));
  // The next one that may is served all the same.
  End end;
  const auto transport = MakeGrpcTransport({});
  const auto connection = transport->Dial(relay.address(), &end, {}).value();
  ASSERT_TRUE(connection->Send(Wants()).ok());
  EXPECT_EQ(relay.Wanted(1).size(), 1u) << "and of the others none was asked for";
}

TEST(RelayTest, OneThatSaysNothingOrIsNotAnsweredIsCutOff) {
  Relay relay({}, {}, /*hello_deadline_ms=*/200);
  const auto transport = MakeGrpcTransport({});
  End silent, alone;
  const auto first = transport->Dial(relay.address(), &silent, {}).value();
  const auto second = transport->Dial(relay.address(), &alone, {}).value();
  ASSERT_TRUE(second->Send(Wants()).ok());
  EXPECT_THAT(std::string(silent.WaitForClosed().message()), HasSubstr("no hello came in time"));
  EXPECT_THAT(std::string(alone.WaitForClosed().message()), HasSubstr("did not come"));
  // The ticket is worth nothing any more.
  const std::string ticket = relay.Wanted(1)[0].ticket;
  EXPECT_THAT(relay.EndOf(MakeRelayHello({true, ticket})), HasSubstr("nobody waits"));
}

TEST(RelayTest, OfManyThatSayNothingTheOldestGo) {
  Relay relay({}, {}, /*hello_deadline_ms=*/600'000);
  const auto transport = MakeGrpcTransport({});
  End all;
  std::vector<std::shared_ptr<Connection>> connections;
  for (int i = 0; i < 40; ++i)
    connections.push_back(transport->Dial(relay.address(), &all, {}).value());
  EXPECT_TRUE(all.WaitForEnds(24));
  connections.clear();
}

class SecureRelay : public ::testing::Test {
 protected:
  GrpcSecurity Worker(const std::string& name) {
    return SecurityOf(JoinedWorker(*authority_, name));
  }

  ScratchDir scratch_;
  std::unique_ptr<Authority> authority_ =
      Authority::Create(scratch_ / "home", SystemWallClock()).value();
};

TEST_F(SecureRelay, TheCertificateSaysWhoItIs) {
  GrpcSecurity server = SecurityOf(authority_->ServerIdentity().value());
  server.check_peer = [this](const CertificateInfo& peer) { return authority_->Check(peer); };
  const GrpcSecurity far = Worker("far"), near = Worker("near"), mallory = Worker("mallory");
  Relay relay(server, far);
  EXPECT_THAT(relay.EndOf(Wants(), mallory), HasSubstr("worker/mallory says to be worker/near"));
  EXPECT_THAT(relay.EndOf(Wants(kToken, "worker/mallory"), mallory), HasSubstr("no neighbour"));
  EXPECT_FALSE(relay.EndOf(Wants()).empty()) << "no certificate";
  const auto transport = MakeGrpcTransport({.security = near});
  End end;
  const auto connection = transport->Dial({relay.address(), "server/central"}, &end, {}).value();
  ASSERT_TRUE(connection->Send(Wants()).ok());
  const std::vector<RelayWanted> wanted = relay.Wanted(1);
  EXPECT_EQ(wanted[0].from, kNear);
  const Frame answer = MakeRelayHello({true, wanted[0].ticket});
  EXPECT_THAT(relay.EndOf(answer, mallory), HasSubstr("that worker/far was given"));
  const auto far_transport = MakeGrpcTransport({.security = far});
  End far_end;
  const auto answered =
      far_transport->Dial({relay.address(), "server/central"}, &far_end, {}).value();
  ASSERT_TRUE(answered->Send(answer).ok());
  ASSERT_TRUE(connection->Send(TestFrame(FrameKind::kActivation, 7, 100)).ok());
  ASSERT_TRUE(far_end.WaitForFrames(1));
  EXPECT_EQ(WhatIsWrongWith(far_end.frames()[0]), "");
}

// Both ends of a relayed connection, by hand.
class BothEnds {
 public:
  // The n-th of the relay, counted from 1.
  explicit BothEnds(Relay& relay, size_t n = 1) {
    near_connection_ = near_transport_->Dial(relay.address(), &near, {}).value();
    EXPECT_TRUE(near_connection_->Send(Wants()).ok());
    const std::string ticket = relay.Wanted(n)[n - 1].ticket;
    far_connection_ = far_transport_->Dial(relay.address(), &far, {}).value();
    EXPECT_TRUE(far_connection_->Send(MakeRelayHello({true, ticket})).ok());
  }
  ~BothEnds() { far.Hold(false); }
  Connection& connection() { return *near_connection_; }

  End near, far;

 private:
  const std::unique_ptr<Transport> near_transport_ = MakeGrpcTransport({});
  const std::unique_ptr<Transport> far_transport_ = MakeGrpcTransport({});
  std::shared_ptr<Connection> near_connection_, far_connection_;
};

// What has left the sender lies in buffers of both connections and in the relay's few messages.
TEST(RelayTest, ASlowReceiverSlowsItsSenderAndFillsNoMemory) {
  constexpr int kFrames = 256;
  constexpr int kRounds = 2'000;
  constexpr int64_t kFrameBytes = int64_t{1} << 20;
  constexpr int64_t kMostUnderWay = int64_t{96} << 20;
  Relay relay;
  BothEnds ends(relay);
  ends.far.Hold(true);
  const Frame frame = TestFrame(FrameKind::kActivation, 1, kFrameBytes);
  for (int i = 0; i < kFrames; ++i) ASSERT_TRUE(ends.connection().Send(frame).ok());
  // Others are not slowed, and while they get on nothing more comes of the slow one.
  BothEnds others(relay, 2);
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(others.connection().Send(TestFrame(FrameKind::kActivation, i, 100)).ok());
    ASSERT_TRUE(others.far.WaitForFrames(static_cast<size_t>(i) + 1));
    ASSERT_GT(ends.connection().queued_bytes(), kFrames * kFrameBytes - kMostUnderWay) << i;
  }
  ends.far.Hold(false);
  EXPECT_TRUE(ends.far.WaitForFrames(kFrames));
  EXPECT_EQ(relay.central().RelayedLinks()[0],
            (RelayedLink{kNear, kFar, kFrames * (kFrameBytes + kFrameHeaderBytes)}));
}

TEST(RelayTest, AnotherPlanEndsWhatIsRelayed) {
  Relay relay;
  BothEnds ends(relay);
  ASSERT_TRUE(ends.connection().Send(TestFrame(FrameKind::kActivation, 1, 100)).ok());
  ASSERT_TRUE(ends.far.WaitForFrames(1));
  relay.Allow(2);
  EXPECT_TRUE(absl::IsUnavailable(ends.near.WaitForClosed()));
  EXPECT_TRUE(absl::IsUnavailable(ends.far.WaitForClosed()));
  EXPECT_THAT(relay.central().RelayedLinks(), IsEmpty());
}

// A stage's end of a link, with a loop of the test's own. The stage that is dialled is either there
// for everybody or behind a port that refuses.
class LinkTest : public ::testing::Test {
 protected:
  // Both ends of a link; the far one is dialled at `address`, or where it listens.
  void Connect(std::string address) {
    ASSERT_TRUE(acceptor_.Listen(&far_routes_, kAnyPort).ok());
    acceptor_.Expect({kToken, kNear, ""}, {});
    if (address.empty()) address = acceptor_.address();
    far_.emplace(&loop_, &limits_, LinkShell::Options{}, Deliver(received_), Failed());
    LinkShell::Options options;
    options.transport = &near_routes_;
    options.target = {address, kFar, kToken, "greeting"};
    options.role = "link";
    near_.emplace(&loop_, &limits_, options, Deliver(ignored_), Failed());
    std::map<std::pair<FrameKind, uint32_t>, uint64_t> allowed;
    for (uint32_t samples = 0; samples < 1'000; ++samples)
      allowed[{FrameKind::kActivation, samples}] = 1 << 20;
    limits_.Set(std::move(allowed));
    near_->Start();
    Ask();
  }
  LinkSession::DeliverFn Deliver(int64_t& count) {
    return [this, &count](const Frame& frame) {
      EXPECT_EQ(frame.header.sequence, Sequence(count));
      EXPECT_EQ(WhatIsWrongWith(frame), "");
      ++count;
      far_->session().Acknowledge(frame.header.kind, Generation(0), frame.header.sequence);
      if (on_frame_) on_frame_();
    };
  }
  LinkShell::FailedFn Failed() {
    return [this](const absl::Status& status) {
      ADD_FAILURE() << status;
      loop_.Stop();
    };
  }
  // The worker's daemon would do this when it is told to.
  void Ask() {
    const std::vector<RelayWanted> wanted = relay_.WantedSoFar();
    for (; answered_ < wanted.size(); ++answered_)
      far_routes_.Answer(wanted[answered_].ticket, wanted[answered_].from);
    loop_.PostAfter(1'000'000, [this] { Ask(); });
  }
  void SendUntil(int64_t frames) {
    for (; sent_ < frames; ++sent_)
      near_->session().Send(TestFrame(FrameKind::kActivation, sent_, 200'000));
  }

  Relay relay_;
  MonotonicClock clock_;
  ThreadLoop loop_{&clock_};
  FrameLimits limits_;
  std::unique_ptr<Transport> transport_ = MakeGrpcTransport({});
  RelayTransport near_routes_{{transport_.get(), &clock_, relay_.address(), kNear}};
  RelayTransport far_routes_{{transport_.get(), &clock_, relay_.address(), kFar}};
  std::shared_ptr<LoopConnection> at_far_;  // the last one
  int attached_ = 0;
  LinkAcceptor acceptor_{
      &loop_, &limits_,
      [this](const std::string&, std::shared_ptr<LoopConnection> connection) {
        ++attached_;
        at_far_ = connection;
        connection->connection()->Send(MakeHello({"greeting", "link"})).IgnoreError();
        far_->Attach(std::move(connection));
      },
      [](absl::string_view why) { ADD_FAILURE() << why; }};
  std::function<void()> on_frame_;
  int64_t sent_ = 0, received_ = 0, ignored_ = 0;
  size_t answered_ = 0;
  std::optional<LinkShell> far_, near_;
};

TEST_F(LinkTest, WhoCanBeDialledIsNotRelayed) {
  Connect("");
  on_frame_ = [this] { loop_.Stop(); };
  SendUntil(1);
  loop_.Run();
  EXPECT_EQ(received_, 1);
  EXPECT_EQ(answered_, 0u);
  EXPECT_THAT(relay_.central().RelayedLinks(), IsEmpty());
}

// Either leg is cut in the middle of a frame, again and again: each frame comes once, in order.
TEST_F(LinkTest, WhoCannotBeDialledIsRelayedAndACutLegResumes) {
  // Cut at 10, 30 and 50, with at most 12 frames under way: behind each cut some are still to be
  // sent.
  constexpr int64_t kFrames = 65;
  const ClosedPort closed;
  Connect(closed.address());
  on_frame_ = [&] {
    if (received_ == kFrames) return loop_.Stop();
    SendUntil(std::min(kFrames, received_ + 12));
    if (received_ % 20 == 10) {
      // The far worker's leg; then what central has of both.
      loop_.Post([this, at = received_] {
        if (at % 40 == 10) {
          far_->session().Disconnected();
          at_far_->Abort();
        } else {
          relay_.Allow(static_cast<int32_t>(at));
        }
      });
    }
  };
  SendUntil(10);
  loop_.Run();
  EXPECT_EQ(received_, kFrames);
  // A cut that takes effect late may fall together with the next one; behind the first one most
  // frames are still to be sent.
  EXPECT_GE(attached_, 2);
  EXPECT_EQ(relay_.central().RelayedLinks().size(), 1u);
}

}  // namespace
}  // namespace runnel::relay_test
