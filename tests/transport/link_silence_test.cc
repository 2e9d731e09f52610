// A link whose connection carries nothing any more makes another one: how long it waits follows
// from what came before. In virtual time.

#include <memory>

#include "gtest/gtest.h"
#include "proto/transport/link/link_shell.h"
#include "tests/support/in_process/virtual_loop.h"

namespace runnel::link_silence_test {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;

// A peer that greets and answers pings while the test has it answer.
class AnsweringPeer final : public Transport {
 public:
  explicit AnsweringPeer(EventLoop* loop) : loop_(loop) {}

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string&, AcceptFn) override {
    return absl::UnimplementedError("nobody listens");
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget&, ConnectionObserver* observer,
                                                   const LinkShaping&) override {
    ++dials;
    observer_ = observer;
    observer->OnFrame(MakeHello({"greeting", "link"}));
    return std::make_shared<Line>(this, observer);
  }
  // A frame of so many bytes begins to come.
  void BeginFrame(uint64_t bytes) {
    FrameHeader header;
    header.kind = FrameKind::kProbe;
    header.payload_bytes = bytes;
    EXPECT_TRUE(observer_->OnHeader(header).ok());
  }

  bool answers = true;
  int dials = 0;

 private:
  class Line final : public Connection {
   public:
    Line(AnsweringPeer* peer, ConnectionObserver* observer) : peer_(peer), observer_(observer) {}
    ~Line() override { *stands_ = false; }
    absl::Status Send(const Frame& frame) override {
      if (peer_->answers && frame.header.kind == FrameKind::kProbe) {
        peer_->loop_->PostAfter(
            20 * kMs, [observer = observer_, stands = stands_, ping = frame.header.sequence] {
              if (*stands) observer->OnFrame(MakeProbeReport({64, 20 * kMs}, ping));
            });
      }
      return absl::OkStatus();
    }
    void Close() override {}
    int64_t queued_bytes() const override { return 0; }

   private:
    AnsweringPeer* const peer_;
    ConnectionObserver* const observer_;
    const std::shared_ptr<bool> stands_ = std::make_shared<bool>(true);
  };

  EventLoop* const loop_;
  ConnectionObserver* observer_ = nullptr;
};

class LinkSilence : public ::testing::Test {
 protected:
  LinkSilence() {
    LinkShell::Options options;
    options.transport = &peer_;
    options.target = {"192.0.2.1:1", "worker/pi-2", "token", "greeting"};
    options.role = "link";
    options.probes = true;
    shell_ = std::make_unique<LinkShell>(
        &loop_, &limits_, options, [](Frame) {},
        [](const absl::Status& status) { ADD_FAILURE() << status; });
    loop_.Post([this] { shell_->Start(); });
    Pass(20 * kSecond);
    EXPECT_EQ(peer_.dials, 1);
  }
  void Pass(int64_t ns) { network_.RunUntil(now_ns_ += ns); }

  int64_t now_ns_ = 0;
  SimulatedNetwork network_{InProcessFaults{}};
  VirtualLoop loop_{&network_};
  FrameLimits limits_;
  AnsweringPeer peer_{&loop_};
  std::unique_ptr<LinkShell> shell_;
};

TEST_F(LinkSilence, ADeadConnectionIsReplaced) {
  peer_.answers = false;
  Pass(10 * kSecond);
  EXPECT_EQ(peer_.dials, 1) << "of an unknown rate buffers may be full";
  Pass(5 * kSecond);
  EXPECT_EQ(peer_.dials, 2);
  peer_.answers = true;
  Pass(60 * kSecond);
  EXPECT_EQ(peer_.dials, 2);
  EXPECT_TRUE(shell_->connected());
}

// A tensor on a slow link: while its bytes come, nothing else does.
TEST_F(LinkSilence, AFrameThatTakesMinutesIsNoSilence) {
  peer_.answers = false;
  Pass(kSecond);
  peer_.BeginFrame(1'000);
  Pass(300 * kSecond);
  EXPECT_EQ(peer_.dials, 1);
}

TEST_F(LinkSilence, AProcessThatWasStoppedBlamesNobody) {
  loop_.SetFrozen(true);
  Pass(60 * kSecond);
  loop_.SetFrozen(false);
  Pass(60 * kSecond);
  EXPECT_EQ(peer_.dials, 1);
}

}  // namespace
}  // namespace runnel::link_silence_test
