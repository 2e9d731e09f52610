#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/backends/hexagon/device/dsp_transport.h"

namespace runnel::hexagon {
namespace {

// State of the calling thread. It owns all data of a call, since a call may never return.
class Caller {
 public:
  Caller(std::shared_ptr<const RemoteHandle> handle, std::shared_ptr<const SharedMemory> memory)
      : handle_(std::move(handle)), memory_(std::move(memory)) {}

  void Begin(const DspRequest& request, absl::Span<const DspRange> changed,
             absl::Span<const DspRange> written) {
    const std::lock_guard lock(mutex_);
    request_ = request;
    reply_ = {.magic = 0};
    arguments_.clear();
    arguments_.push_back({&request_, sizeof(request_)});
    for (const DspRange& range : changed) arguments_.push_back(ArgumentOf(range));
    in_ = static_cast<uint32_t>(arguments_.size());
    arguments_.push_back({&reply_, sizeof(reply_)});
    for (const DspRange& range : written) arguments_.push_back(ArgumentOf(range));
    state_ = State::kBegun;
    changed_.notify_all();
  }

  // The error and the reply; none: not within `patience`.
  std::optional<std::pair<int, DspReply>> Await(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [&] { return state_ != State::kBegun; })) {
      return std::nullopt;
    }
    return std::make_pair(error_, reply_);
  }

  void End() {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }

  // The thread.
  void Loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || state_ == State::kBegun; });
      if (state_ != State::kBegun) return;
      const auto out = static_cast<uint32_t>(arguments_.size()) - in_;
      lock.unlock();
      const int error = handle_->Invoke(kMethodRequest, in_, out, arguments_.data());
      lock.lock();
      error_ = error;
      state_ = State::kDone;
      changed_.notify_all();
    }
  }

 private:
  enum class State { kIdle, kBegun, kDone };

  RemoteArgument ArgumentOf(const DspRange& range) const {
    return {memory_->base() + range.offset, range.bytes};
  }

  const std::shared_ptr<const RemoteHandle> handle_;
  const std::shared_ptr<const SharedMemory> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kIdle;
  bool ends_ = false;
  DspRequest request_;
  DspReply reply_;
  std::vector<RemoteArgument> arguments_;
  uint32_t in_ = 0;
  int error_ = 0;
};

class CallTransport final : public DspTransport {
 public:
  CallTransport(std::shared_ptr<const RemoteHandle> handle,
                std::shared_ptr<const SharedMemory> memory)
      : caller_(std::make_shared<Caller>(std::move(handle), std::move(memory))),
        thread_([caller = caller_] { caller->Loop(); }) {}
  ~CallTransport() override {
    caller_->End();
    // A caller that gave up has killed the DSP's process, which ends the call; if not, the thread
    // stays with it.
    if (caller_->Await(std::chrono::seconds(1)).has_value()) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }

  const char* name() const override { return "remote calls"; }

  absl::Status Send(const DspRequest& request, absl::Span<const DspRange> changed,
                    absl::Span<const DspRange> written) override {
    caller_->Begin(request, changed, written);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<std::vector<std::byte>>> Receive(
      std::chrono::milliseconds patience) override {
    const auto answer = caller_->Await(patience);
    if (!answer) return std::nullopt;
    if (answer->first != 0) {
      return absl::UnavailableError(
          absl::StrCat(" takes no remote call: ", DescribeVendorError(answer->first)));
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(&answer->second);
    return std::vector<std::byte>(bytes, bytes + sizeof(DspReply));
  }

 private:
  const std::shared_ptr<Caller> caller_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DspTransport> MakeCallTransport(std::shared_ptr<const RemoteHandle> handle,
                                                std::shared_ptr<const SharedMemory> memory) {
  return std::make_unique<CallTransport>(std::move(handle), std::move(memory));
}

}  // namespace runnel::hexagon
