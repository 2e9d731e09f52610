#include "proto/transport/link/link_shell.h"

#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace runnel {
namespace {

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
  void Run(int64_t give_up_after_ns) {
    LinkShell::Options options;
    options.transport = &transport_;
    options.address = "192.0.2.1:1";
    options.hello = {"token", "link"};
    options.give_up_after_ns = give_up_after_ns;
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
  Run(/*give_up_after_ns=*/1);
  EXPECT_EQ(transport_.dials, 3);
  EXPECT_EQ(failed_.code(), absl::StatusCode::kUnavailable) << failed_;
}

TEST_F(LinkShellTest, ProbesAreMeasuredAndReported) {
  transport_.on_dial = [this](int, ConnectionObserver* observer) {
    Frame probe = MakeProbe(BandwidthProbe::kFirstBytes);
    ASSERT_TRUE(observer->OnHeader(probe.header).ok());
    probe.arrival = {12'000, 3'000'000};
    observer->OnFrame(probe);
    loop_.Post([this] { loop_.Stop(); });
  };
  Run(1'000'000'000);
  EXPECT_DOUBLE_EQ(shell_->received_bytes_per_second(), 4e6);
  ASSERT_EQ(transport_.sent.size(), 2u) << "a hello and a report";
  const auto report = ParseProbeReport(transport_.sent[1].payload.bytes());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->bytes, 12'000);
  EXPECT_EQ(report->ns, 3'000'000);
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
