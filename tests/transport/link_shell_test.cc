#include "proto/transport/link/link_shell.h"

#include <functional>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

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
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const std::string&, ConnectionObserver* observer,
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
    options.address = "192.0.2.1:1";
    options.hello = {"token", "link"};
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
  EventLoop loop_{&clock_};
  FrameLimits limits_;
  FakeTransport transport_;
  std::unique_ptr<LinkShell> shell_;
  absl::Status failed_;
};

// What counts is how long there was no connection that worked, not how long nothing came in: a
// frame may take a minute on a slow link.
TEST_F(LinkShellTest, ABrokenConnectionThatWorkedIsDialledAgain) {
  transport_.on_dial = [](int dial, ConnectionObserver* observer) {
    if (dial <= 2) observer->OnFrame(MakeHello({"token", "link"}));
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
  EXPECT_THAT(TextOf(failed_), HasSubstr("data link to 192.0.2.1:1: the peer has refused"));
  EXPECT_THAT(TextOf(failed_), HasSubstr("has a stage of \\033 another plan"));
}

TEST_F(LinkShellTest, WhatDamagedBytesCostIsSentAgain) {
  Frame frame;
  frame.header.kind = FrameKind::kActivation;
  frame.header.generation = Generation(1);
  transport_.on_dial = [&](int dial, ConnectionObserver* observer) {
    loop_.Post([&, dial, observer] {
      shell_->session().StartGeneration(Generation(1));
      if (dial == 1) shell_->session().Send(frame);
      if (dial == 2) return loop_.Stop();
      observer->OnClosed(absl::DataLossError("frame payload: CRC does not fit the bytes"));
    });
  };
  Run({.lost_ns = 1});
  EXPECT_TRUE(failed_.ok()) << failed_;
  ASSERT_EQ(transport_.sent.size(), 4u) << "a hello and the frame, twice";
  EXPECT_EQ(transport_.sent[1].header, transport_.sent[3].header);
  EXPECT_EQ(shell_->session().counters().frames_resent, 1);
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
}  // namespace runnel
