#include "proto/transport/link/link_shell.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::link_shell_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

// What the stage that is meant answers.
Frame Greeting() { return MakeHello({"greeting", "link"}); }

// Connections that do what the test says.
class FakeTransport final : public Transport {
 public:
  class FakeConnection final : public Connection {
   public:
    explicit FakeConnection(std::vector<Frame>* sent) : sent_(sent) {}
    absl::Status Send(const Frame& frame) override {
      sent_->push_back(frame);
      return absl::OkStatus();
    }
    void Close() override {}
    int64_t queued_bytes() const override { return 0; }

   private:
    std::vector<Frame>* const sent_;
  };

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string&, AcceptFn) override {
    return absl::UnimplementedError("nobody listens");
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget&, ConnectionObserver* observer,
                                                   const LinkShaping&) override {
    on_dial(++dials, observer);
    return std::make_shared<FakeConnection>(&sent);
  }

  std::function<void(int dial, ConnectionObserver* observer)> on_dial;
  int dials = 0;
  std::vector<Frame> sent;
};

class LinkShellTest : public testing::Test {
 protected:
  // Runs a dialling shell until it fails, or `until` stops the loop.
  void Run(const RedialLimits& limits) {
    LinkShell::Options options;
    options.transport = &transport_;
    options.target = {"192.0.2.1:1", "worker/pi-2", "token", "greeting"};
    options.role = "link";
    options.redial = limits;
    shell_ = std::make_unique<LinkShell>(
        &loop_, &limits_, options, [](Frame) {},
        [this](const absl::Status& status) {
          failed_ = status;
          loop_.Stop();
        });
    loop_.Post([this] { shell_->Start(); });
    loop_.Run();
  }

  MonotonicClock clock_;
  ThreadLoop loop_{&clock_};
  FrameLimits limits_;
  FakeTransport transport_;
  std::unique_ptr<LinkShell> shell_;
  absl::Status failed_;
};

// What counts is how long there was no connection that worked, not how long nothing came in: a
// frame may take a minute on a slow link.
TEST_F(LinkShellTest, ABrokenConnectionThatWorkedIsDialledAgain) {
  transport_.on_dial = [](int dial, ConnectionObserver* observer) {
    if (dial <= 2) observer->OnFrame(Greeting());
    observer->OnClosed(absl::UnavailableError("timed out"));
  };
  Run({.lost_ns = 1});
  EXPECT_EQ(transport_.dials, 3);
  EXPECT_EQ(failed_.code(), absl::StatusCode::kUnavailable) << failed_;
}

// It is there, only later than we are.
TEST_F(LinkShellTest, APeerThatIsNotReadyYetIsDialledAgain) {
  transport_.on_dial = [this](int dial, ConnectionObserver* observer) {
    if (dial < 4) {
      observer->OnFrame(MakeRefusal("has no stage yet"));
      return observer->OnClosed(absl::OkStatus());
    }
    loop_.Post([this] { loop_.Stop(); });
  };
  Run({.lost_ns = 1});
  EXPECT_EQ(transport_.dials, 4);
  EXPECT_TRUE(failed_.ok()) << failed_;
}

TEST_F(LinkShellTest, ARefusalThatLastsSaysWhy) {
  transport_.on_dial = [](int, ConnectionObserver* observer) {
    observer->OnFrame(MakeRefusal("has a stage of \x1b another plan"));
    observer->OnClosed(absl::OkStatus());
  };
  Run({.refused_ns = 1});
  EXPECT_EQ(failed_.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(failed_), HasSubstr("data link to pi-2 (192.0.2.1:1): the peer has refused"));
  EXPECT_THAT(TextOf(failed_), HasSubstr("has a stage of \\033 another plan"));
}

TEST_F(LinkShellTest, WhatDamagedBytesCostIsSentAgain) {
  Frame frame;
  frame.header.kind = FrameKind::kActivation;
  frame.header.generation = Generation(1);
  transport_.on_dial = [&](int dial, ConnectionObserver* observer) {
    loop_.Post([&, dial, observer] {
      observer->OnFrame(Greeting());
      shell_->session().StartGeneration(Generation(1));
      if (dial == 1) shell_->session().Send(frame);
      if (dial == 2) return loop_.Post([this] { loop_.Stop(); });
      observer->OnClosed(absl::DataLossError("frame payload: CRC does not fit the bytes"));
    });
  };
  Run({.lost_ns = 1});
  EXPECT_TRUE(failed_.ok()) << failed_;
  ASSERT_EQ(transport_.sent.size(), 4u) << "a hello and the frame, twice";
  EXPECT_EQ(transport_.sent[1].header, transport_.sent[3].header);
  EXPECT_EQ(shell_->session().counters().frames_resent, 1);
}

// Whoever has the port of the stage that is meant does not get a tensor.
TEST_F(LinkShellTest, NothingIsSentBeforeTheRightGreeting) {
  Frame frame;
  frame.header.kind = FrameKind::kActivation;
  frame.header.generation = Generation(1);
  transport_.on_dial = [&](int dial, ConnectionObserver* observer) {
    if (dial == 1) {
      shell_->session().StartGeneration(Generation(1));
      shell_->session().Send(frame);
    }
    if (dial == 1) return observer->OnFrame(MakeHello({"token", "link"}));  // what it was shown
    if (dial == 2) return observer->OnFrame(MakePing(Sequence(5)));
    if (dial == 3) return observer->OnClosed(absl::InvalidArgumentError("frame: magic"));
    EXPECT_EQ(transport_.sent.size(), 3u) << "three hellos";
    EXPECT_FALSE(shell_->connected());
    observer->OnFrame(Greeting());
    loop_.Post([this] { loop_.Stop(); });
  };
  Run({});
  EXPECT_TRUE(failed_.ok()) << failed_;
  EXPECT_EQ(transport_.dials, 4);
  ASSERT_EQ(transport_.sent.size(), 5u);
  EXPECT_EQ(transport_.sent[4].header.kind, FrameKind::kActivation);
}

// A message about a lost link says whose it was, at both ends.
TEST_F(LinkShellTest, AnAcceptingEndNamesItsPeer) {
  LinkShell::Options options;
  options.peer = "worker/pi-1";
  LinkShell shell(
      &loop_, &limits_, options, [](Frame) {},
      [this](const absl::Status& status) {
        failed_ = status;
        loop_.Stop();
      });
  const auto connection = std::make_shared<LoopConnection>(&loop_, &limits_);
  connection->SetConnection(std::make_shared<FakeTransport::FakeConnection>(&transport_.sent));
  Frame never_sent;
  never_sent.header.kind = FrameKind::kAck;
  never_sent.header.acked_kind = FrameKind::kActivation;
  loop_.Post([&] {
    shell.Attach(connection);
    connection->OnFrame(never_sent);
  });
  loop_.Run();
  EXPECT_THAT(TextOf(failed_), HasSubstr("data link from pi-1: link: frame of kind"));
}

// A listener whose connections the test makes.
class FakeListening final : public Transport {
 public:
  // One connection, as its peer and as the listener see it.
  struct Peer {
    std::string name;
    bool closed = false;
    std::vector<Frame> heard;
    ConnectionObserver* observer = nullptr;
  };

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string&, AcceptFn accept) override {
    accept_ = std::move(accept);
    class Nowhere final : public Listener {
      std::string address() const override { return "192.0.2.1:1"; }
    };
    return std::make_unique<Nowhere>();
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget&, ConnectionObserver*,
                                                   const LinkShaping&) override {
    return absl::UnimplementedError("nobody dials");
  }
  // Null observer: not accepted.
  std::shared_ptr<Peer> Connect(const std::string& name) {
    auto peer = std::make_shared<Peer>();
    peer->name = name;
    peer->observer = accept_(std::make_shared<End>(peer)).observer;
    return peer;
  }
  static void Say(const std::shared_ptr<Peer>& peer, const Frame& frame) {
    if (peer->observer->OnHeader(frame.header).ok()) peer->observer->OnFrame(frame);
  }

 private:
  class End final : public Connection {
   public:
    explicit End(std::shared_ptr<Peer> peer) : peer_(std::move(peer)) {}
    ~End() override { Close(); }
    absl::Status Send(const Frame& frame) override {
      peer_->heard.push_back(frame);
      return absl::OkStatus();
    }
    void Close() override {
      if (!std::exchange(peer_->closed, true) && peer_->observer != nullptr)
        peer_->observer->OnClosed(absl::OkStatus());
    }
    int64_t queued_bytes() const override { return 0; }
    std::string peer() const override { return peer_->name; }

   private:
    const std::shared_ptr<Peer> peer_;
  };

  AcceptFn accept_;
};

class HandClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_ns; }
  std::atomic<int64_t> now_ns{0};
};

class LinkAcceptorTest : public testing::Test {
 protected:
  LinkAcceptorTest() {
    EXPECT_TRUE(acceptor_.Listen(&transport_, "192.0.2.1:1").ok());
    acceptor_.Expect({"token", "worker/pi-1", "server/central"}, {});
  }
  // Runs what has been posted so far, and what that posts.
  void Settle() {
    for (int i = 0; i < 3; ++i) loop_.Post([] {});
    loop_.Post([this] { loop_.Post([this] { loop_.Stop(); }); });
    loop_.Run();
  }

  HandClock clock_;
  ThreadLoop loop_{&clock_};
  FrameLimits limits_;
  FakeListening transport_;
  std::vector<std::string> joined_;
  std::vector<std::string> refused_;
  std::vector<std::shared_ptr<LoopConnection>> connections_;
  LinkAcceptor acceptor_{&loop_, &limits_,
                         [this](const std::string& role, std::shared_ptr<LoopConnection> one) {
                           joined_.push_back(role);
                           connections_.push_back(std::move(one));
                         },
                         [this](absl::string_view why) { refused_.emplace_back(why); }};
};

TEST_F(LinkAcceptorTest, TakesThePlansNeighboursAndNobodyElse) {
  const auto upstream = transport_.Connect("worker/pi-1");
  const auto central = transport_.Connect("server/central");
  const auto unproven = transport_.Connect("");  // of a transport that proves nothing
  const auto stranger = transport_.Connect("worker/pi-9");
  const auto pretender = transport_.Connect("worker/pi-1");
  transport_.Say(upstream, MakeHello({"token", "link"}));
  transport_.Say(central, MakeHello({"token", "feed"}));
  transport_.Say(unproven, MakeHello({"token", "link"}));
  transport_.Say(stranger, MakeHello({"token", "link"}));
  transport_.Say(pretender, MakeHello({"token", "feed"}));
  Settle();
  EXPECT_EQ(joined_, (std::vector<std::string>{"link", "feed", "link"}));
  EXPECT_FALSE(upstream->closed || central->closed || unproven->closed);
  EXPECT_TRUE(stranger->closed && pretender->closed);
  EXPECT_EQ(refused_, (std::vector<std::string>{
                          "data link: worker/pi-9 dialled as a link, which worker/pi-1 is",
                          "data link: worker/pi-1 dialled as a feed, which server/central is"}));
}

TEST_F(LinkAcceptorTest, AnotherTokenIsAskedToComeAgain) {
  const auto early = transport_.Connect("worker/pi-1");
  transport_.Say(early, MakeHello({"other", "link"}));
  Settle();
  ASSERT_EQ(early->heard.size(), 1u);
  EXPECT_EQ(early->heard[0].header.kind, FrameKind::kRefusal);
  EXPECT_TRUE(early->closed);
  EXPECT_TRUE(joined_.empty());
}

// Before anything is allocated.
TEST_F(LinkAcceptorTest, AStrangersFirstFrameIsAShortHello) {
  limits_.Set({{{FrameKind::kActivation, 4}, uint64_t{64} << 20}});
  const auto peer = transport_.Connect("");
  FrameHeader tensor;
  tensor.kind = FrameKind::kActivation;
  tensor.samples = 4;
  tensor.payload_bytes = uint64_t{64} << 20;
  EXPECT_TRUE(absl::IsInvalidArgument(peer->observer->OnHeader(tensor)));
  FrameHeader hello;
  hello.kind = FrameKind::kHello;
  hello.payload_bytes = 1025;
  EXPECT_TRUE(absl::IsInvalidArgument(peer->observer->OnHeader(hello)));
  hello.payload_bytes = 1024;
  EXPECT_TRUE(peer->observer->OnHeader(hello).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(peer->observer->OnHeader(hello))) << "a second one";
  const auto neighbour = transport_.Connect("worker/pi-1");
  transport_.Say(neighbour, MakeHello({"token", "link"}));
  Settle();
  EXPECT_TRUE(neighbour->observer->OnHeader(tensor).ok());
}

TEST_F(LinkAcceptorTest, SilentStrangersAreCutOff) {
  const auto silent = transport_.Connect("");
  const auto neighbour = transport_.Connect("worker/pi-1");
  transport_.Say(neighbour, MakeHello({"token", "link"}));
  loop_.Post([this] { clock_.now_ns = LinkAcceptor::kHelloPatienceNs; });
  Settle();
  EXPECT_TRUE(silent->closed);
  EXPECT_FALSE(neighbour->closed);
}

TEST_F(LinkAcceptorTest, OfTooManyStrangersTheOldestGoes) {
  std::vector<std::shared_ptr<FakeListening::Peer>> crowd;
  for (size_t i = 0; i < 1000; ++i) {
    crowd.push_back(transport_.Connect(""));
    if (crowd.back()->observer == nullptr) crowd.pop_back();
  }
  EXPECT_EQ(crowd.size(), 4 * LinkAcceptor::kMostStrangers) << "while the loop is busy";
  Settle();
  const auto is_closed = [](const auto& peer) { return peer->closed; };
  EXPECT_EQ(static_cast<size_t>(std::count_if(crowd.begin(), crowd.end(), is_closed)),
            3 * LinkAcceptor::kMostStrangers);
  EXPECT_TRUE(crowd.front()->closed);
  EXPECT_FALSE(crowd.back()->closed);
}

// An OK status must never become a failure: it has no text.
TEST(RedialPolicy, AnEndInOrderBeforeAGreetingIsNotYet) {
  RedialPolicy policy({.lost_ns = kSecond, .refused_ns = 5 * kSecond}, /*dials=*/true);
  policy.Begin(0);
  for (int s = 1; s <= 6; ++s) {
    EXPECT_TRUE(policy.Ended(s * kSecond, absl::OkStatus(), 0).ok()) << s;
  }
  const absl::Status end = policy.Ended(7 * kSecond, absl::OkStatus(), 0);
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(end), HasSubstr("refused the link for 5 s: it closed it before a greeting"));
}

TEST(RedialPolicy, WhatWorkedOrWasRefusedIsNotLost) {
  RedialPolicy policy({.lost_ns = kSecond, .refused_ns = 3 * kSecond}, /*dials=*/true);
  const absl::Status broken = absl::UnavailableError("reset");
  policy.Begin(0);
  policy.Refused("has no stage yet");
  EXPECT_TRUE(policy.Ended(3 * kSecond, broken, 0).ok());
  EXPECT_TRUE(policy.Ended(4 * kSecond, broken, 0).ok());
  policy.Heard();
  EXPECT_TRUE(policy.Ended(9 * kSecond, broken, 0).ok());
  // The refusal before it counts no more.
  policy.Refused("has no stage yet");
  EXPECT_TRUE(policy.Ended(10 * kSecond, absl::OkStatus(), 0).ok());
  EXPECT_EQ(policy.Ended(12 * kSecond, broken, 0), broken);
}

TEST(RedialPolicy, DamageIsForgivenUntilNothingGetsThrough) {
  for (const bool dials : {false, true}) {
    RedialPolicy policy({.lost_ns = kSecond, .damaged_connections = 3}, dials);
    const absl::Status damage = absl::DataLossError("CRC");
    int64_t now = 0;
    for (int64_t delivered = 0; delivered < 10; ++delivered)
      EXPECT_TRUE(policy.Ended(now += 9 * kSecond, damage, delivered).ok());
    EXPECT_TRUE(policy.Ended(now += 9 * kSecond, damage, 9).ok());
    // Another end in between changes nothing: no frame got through.
    policy.Heard();
    EXPECT_TRUE(policy.Ended(now += 9 * kSecond, absl::UnavailableError("reset"), 9).ok());
    EXPECT_TRUE(policy.Ended(now += 9 * kSecond, damage, 9).ok());
    const absl::Status end = policy.Ended(now += 9 * kSecond, damage, 9);
    EXPECT_TRUE(absl::IsDataLoss(end)) << end;
    EXPECT_THAT(TextOf(end), HasSubstr("CRC, on 4 connections in a row"));
  }
}

TEST(RedialPolicy, BadBytesEndTheLinkAtOnce) {
  RedialPolicy policy({}, /*dials=*/false);
  const absl::Status bad = absl::InvalidArgumentError("frame header: kind");
  EXPECT_EQ(policy.Ended(0, bad, 5), bad);
  const absl::Status hungry = absl::ResourceExhaustedError("out of memory for a frame");
  EXPECT_EQ(RedialPolicy({}, /*dials=*/true).Ended(0, hungry, 5), hungry) << "it would come again";
  EXPECT_TRUE(policy.Ended(1, absl::UnavailableError("gone"), 5).ok()) << "the peer dials again";
}

TEST(RedialPolicy, WaitsLongerEachTimeUntilSomethingIsHeard) {
  RedialPolicy policy({}, /*dials=*/true);
  EXPECT_EQ(policy.NextDelayNs(), 20'000'000);
  EXPECT_EQ(policy.NextDelayNs(), 40'000'000);
  for (int i = 0; i < 10; ++i) policy.NextDelayNs();
  EXPECT_EQ(policy.NextDelayNs(), kSecond);
  policy.Heard();
  EXPECT_EQ(policy.NextDelayNs(), 20'000'000);
}

TEST_F(LinkShellTest, ProbesAreMeasuredAndReported) {
  transport_.on_dial = [this](int, ConnectionObserver* observer) {
    Frame probe = MakeProbe(BandwidthProbe::kFirstBytes);
    ASSERT_TRUE(observer->OnHeader(probe.header).ok());
    observer->OnFrame(Greeting());
    probe.arrival = {12'000, 3'000'000};
    observer->OnFrame(probe);
    loop_.Post([this] { loop_.Stop(); });
  };
  Run({});
  EXPECT_DOUBLE_EQ(shell_->received_bytes_per_second(), 4e6);
  ASSERT_EQ(transport_.sent.size(), 2u) << "a hello and a report";
  const auto report = ParseProbeReport(transport_.sent[1].payload.bytes());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->bytes, 12'000);
  EXPECT_EQ(report->ns, 3'000'000);
}

TEST_F(LinkShellTest, APingIsAnsweredWithItsNumber) {
  transport_.on_dial = [this](int, ConnectionObserver* observer) {
    observer->OnFrame(Greeting());
    observer->OnFrame(MakePing(Sequence(5)));
    loop_.Post([this] { loop_.Stop(); });
  };
  Run({});
  ASSERT_EQ(transport_.sent.size(), 2u) << "a hello and a report";
  EXPECT_EQ(transport_.sent[1].header.kind, FrameKind::kProbeReport);
  EXPECT_EQ(transport_.sent[1].header.sequence, Sequence(5));
}

TEST(FrameLimits, ProbesHaveOneOfTheirOwn) {
  FrameLimits limits;
  EXPECT_TRUE(limits.Check(MakeProbe(BandwidthProbe::kMaxBytes).header).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(limits.Check(MakeProbe(BandwidthProbe::kMaxBytes + 1).header)));
  Frame report = MakeProbeReport({1, 1});
  EXPECT_TRUE(limits.Check(report.header).ok());
  report.header.payload_bytes = 4096;
  EXPECT_TRUE(absl::IsInvalidArgument(limits.Check(report.header)));
}

}  // namespace
}  // namespace runnel::link_shell_test
