// A link that goes by way of central beside one that is dialled straight, over loopback, in one
// process: bytes a second, and a small frame there and back. They take turns, so that a busy
// machine slows both alike. Medians.
//
//   bench_relay [--frame-bytes N] [--frames N] [--rounds N] [--summary FILE]

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto/base/clock.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/relay/relay_transport.h"
#include "tests/bench/bench_frames.h"
#include "tests/bench/bench_tools.h"

namespace runnel {
namespace {

constexpr int kWindow = 4;  // frames under way, as an in-flight cap would have it
constexpr int kPings = 200;

Frame MakeFrame(int64_t bytes) {
  BufferPool pool;
  Frame frame;
  frame.payload = pool.Allocate(static_cast<size_t>(bytes));
  std::fill(frame.payload.mutable_bytes().begin(), frame.payload.mutable_bytes().end(),
            std::byte{0x5a});
  SealFrame(frame);
  return frame;
}

// Counts frames, and sends each back that is small, if it can.
class Counter final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++frames_;
    if (back_ != nullptr && frame.payload.size() < 100) back_->Send(frame).IgnoreError();
    changed_.notify_all();
  }
  void OnClosed(const absl::Status&) override {}

  void SetBack(std::shared_ptr<Connection> back) {
    std::lock_guard<std::mutex> lock(mutex_);
    back_ = std::move(back);
  }
  int64_t WaitFor(int64_t frames) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return frames_ >= frames; });
    return frames_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t frames_ = 0;                // guarded by mutex_
  std::shared_ptr<Connection> back_;  // guarded by mutex_
};

// Central, two workers' transports, and a link between them, straight or not.
class Line final : public CentralControlObserver, WorkerControlObserver {
 public:
  explicit Line(bool relayed) {
    central_ = control_->Listen("127.0.0.1:0", this).value();
    near_ = NewRoutes(near_base_.get(), "worker/near", relayed);
    far_ = NewRoutes(far_base_.get(), "worker/far", relayed);
    worker_ = control_->Connect(central_->address(), 20'000, this).value();
    WorkerHello hello;
    hello.name = "far";
    hello.data_address = "127.0.0.1:1";
    worker_->Send(hello).IgnoreError();
    const ConnectionId far = joined_.get_future().get();
    central_->AllowRelay({Generation(1), {{"token", far, "worker/far", {"worker/near"}}}});
    listener_ = far_->Listen("127.0.0.1:0",
                             [this](std::shared_ptr<Connection> connection) {
                               there_.SetBack(std::move(connection));
                               return Accepted{&there_, {}};
                             })
                    .value();
    dialled_ = near_->Dial({listener_->address(), "", "token"}, &here_, {}).value();
    Ping();
    if (central_->RelayedLinks().empty() == relayed) Fail("the link went the other way");
  }
  ~Line() override {
    dialled_.reset();
    there_.SetBack(nullptr);
    listener_.reset();
    worker_.reset();
    central_.reset();
  }

  void Ping() {
    Send(small_);
    here_.WaitFor(++pings_);
  }
  double PingMicros() {
    const int64_t start_ns = clock_.NowNanos();
    for (int i = 0; i < kPings; ++i) Ping();
    return static_cast<double>(clock_.NowNanos() - start_ns) * 1e-3 / kPings;
  }
  double MegabytesPerSecond(const Frame& frame, int frames) {
    const int64_t before = there_.WaitFor(0);
    const int64_t start_ns = clock_.NowNanos();
    for (int i = 0; i < frames; ++i) {
      there_.WaitFor(before + i + 1 - kWindow);
      Send(frame);
    }
    there_.WaitFor(before + frames);
    const double seconds = static_cast<double>(clock_.NowNanos() - start_ns) * 1e-9;
    return static_cast<double>(frames) * static_cast<double>(frame.payload.size()) * 1e-6 / seconds;
  }

 private:
  void OnJoined(ConnectionId id) override { joined_.set_value(id); }
  void OnMessage(ConnectionId, WorkerMessage) override {}
  void OnGone(ConnectionId, const absl::Status&) override {}
  void OnMessage(CentralMessage message) override {
    if (const auto* wanted = std::get_if<RelayWanted>(&message))
      far_->Answer(wanted->ticket, wanted->from);
  }
  void OnClosed(const absl::Status&) override {}
  void Send(const Frame& frame) {
    if (!dialled_->Send(frame).ok()) Fail("the connection broke");
  }
  std::unique_ptr<RelayTransport> NewRoutes(Transport* base, const char* self, bool relayed) {
    return std::make_unique<RelayTransport>(
        RelayOptions{base, &clock_, central_->address(), self, relayed});
  }

  MonotonicClock clock_;
  const Frame small_ = MakeFrame(1);
  std::promise<ConnectionId> joined_;
  std::unique_ptr<ControlTransport> control_ = MakeGrpcControl({});
  std::unique_ptr<Transport> near_base_ = MakeGrpcTransport({});
  std::unique_ptr<Transport> far_base_ = MakeGrpcTransport({});
  std::unique_ptr<CentralControl> central_;
  std::unique_ptr<RelayTransport> near_, far_;
  std::unique_ptr<WorkerControl> worker_;
  Counter here_, there_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<Connection> dialled_;
  int64_t pings_ = 0;
};

int Run(const FrameOptions& options) {
  Line straight(false), relayed(true);
  const Frame frame = MakeFrame(options.frame_bytes);
  std::vector<double> rates[2], pings[2], rate_shares, ping_shares;
  for (int round = 0; round < options.rounds; ++round) {
    rates[0].push_back(straight.MegabytesPerSecond(frame, options.frames));
    rates[1].push_back(relayed.MegabytesPerSecond(frame, options.frames));
    pings[0].push_back(straight.PingMicros());
    pings[1].push_back(relayed.PingMicros());
    rate_shares.push_back(rates[1].back() / rates[0].back());
    ping_shares.push_back(pings[1].back() / pings[0].back());
  }
  const nlohmann::json summary = {
      {"frame_bytes", options.frame_bytes},         {"straight_mb_per_s", Median(rates[0])},
      {"relayed_mb_per_s", Median(rates[1])},       {"rate_ratio", Median(rate_shares)},
      {"straight_round_trip_us", Median(pings[0])}, {"relayed_round_trip_us", Median(pings[1])},
      {"round_trip_ratio", Median(ping_shares)}};
  std::printf("%s\n", summary.dump(2).c_str());
  if (!options.summary.empty()) std::ofstream(options.summary) << summary.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  return runnel::Run(runnel::ParseFrames(
      argc, argv, {.frame_bytes = int64_t{1} << 20, .frames = 100, .rounds = 9}));
}
