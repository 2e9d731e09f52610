#include "tests/conformance/transport_harness.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "tests/conformance/relay_lab.h"
#include "tests/support/in_process/loopback.h"
#include "tests/support/in_process/simulated.h"

namespace runnel {
namespace {

constexpr std::chrono::milliseconds kPoll{2};

class LoopbackLab final : public TransportLab {
 public:
  Transport& dialler() override { return *transport_; }
  Transport& acceptor() override { return *transport_; }
  int64_t NowNanos() const override { return clock_.NowNanos(); }
  void DestroyTransports() override { transport_.reset(); }

 private:
  MonotonicClock clock_;
  std::unique_ptr<Transport> transport_ = MakeLoopbackTransport();
};

class GrpcLab final : public TransportLab {
 public:
  Transport& dialler() override { return *dialler_; }
  Transport& acceptor() override { return *acceptor_; }
  int64_t NowNanos() const override { return clock_.NowNanos(); }
  int64_t blocks_made() const override { return pool_.blocks_made(); }
  void DestroyTransports() override { dialler_.reset(); }

 private:
  GrpcTransportOptions Options() {
    GrpcTransportOptions options;
    options.pool = &pool_;
    return options;
  }

  MonotonicClock clock_;
  BufferPool pool_;
  std::unique_ptr<Transport> dialler_ = MakeGrpcTransport(Options());
  std::unique_ptr<Transport> acceptor_ = MakeGrpcTransport(Options());
};

class SimulatedLab final : public TransportLab {
 public:
  explicit SimulatedLab(const InProcessFaults& faults) : network_(faults) {}

  Transport& dialler() override { return *dialler_; }
  Transport& acceptor() override { return *acceptor_; }
  int64_t NowNanos() const override { return network_.now_ns(); }
  void DestroyTransports() override { dialler_.reset(); }

 private:
  bool Step() override { return network_.Step(); }
  bool has_threads() const override { return false; }

  SimulatedNetwork network_;
  std::unique_ptr<Transport> dialler_ = network_.NewTransport("dialler");
  std::unique_ptr<Transport> acceptor_ = network_.NewTransport("acceptor");
};

}  // namespace

std::unique_ptr<TransportLab> MakeSimulatedLab(const InProcessFaults& faults) {
  return std::make_unique<SimulatedLab>(faults);
}

std::vector<TransportRow> AllTransports() {
  InProcessFaults jitter;
  jitter.seed = 7;
  jitter.max_delay_ns = 3'000'000;
  return {
      {"loopback", [] { return std::make_unique<LoopbackLab>(); }},
      {"simulated", [] { return MakeSimulatedLab(InProcessFaults{}); }},
      {"simulated_jitter", [jitter] { return MakeSimulatedLab(jitter); }},
      {"grpc", [] { return std::make_unique<GrpcLab>(); }},
      {"relay", MakeRelayLab},
  };
}

void TransportLab::Post(std::function<void()> task) {
  std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  posted_.notify_all();
}

bool TransportLab::RunUntil(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!done()) {
    std::function<void()> task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      // What is asked may also change without a task: look again now and then.
      if (has_threads()) posted_.wait_for(lock, kPoll, [this] { return !tasks_.empty(); });
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
    }
    if (task) {
      task();
    } else if (!has_threads() && !Step()) {
      return false;
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

void Recorder::Enter() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (inside_ || closed_calls_ > 0) ++violations_;
  inside_ = true;
}

void Recorder::Leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  inside_ = false;
}

absl::Status Recorder::OnHeader(const FrameHeader& header) {
  Enter();
  absl::Status status = on_header ? on_header(header) : absl::OkStatus();
  Leave();
  return status;
}

void Recorder::OnFrame(Frame frame) {
  Enter();
  // Before the hook: it may destroy the connection, which ends it within this call.
  Leave();
  if (on_frame) on_frame(frame);
  lab_->Post([this, frame = std::move(frame)] { frames_.push_back(frame); });
}

void Recorder::OnClosed(const absl::Status& status) {
  Enter();
  Leave();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++closed_calls_;
  }
  lab_->Post([this, status] { closed_.push_back(status); });
}

absl::Status Recorder::status() const {
  if (closed_.size() == 1) return closed_[0];
  return absl::InternalError(absl::StrCat(closed_.size(), " calls of OnClosed"));
}

int Recorder::violations() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return violations_;
}

int Recorder::closed_calls() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return closed_calls_;
}

}  // namespace runnel
