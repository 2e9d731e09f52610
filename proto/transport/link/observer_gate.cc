#include "proto/transport/link/observer_gate.h"

#include <utility>

namespace runnel {

ConnectionObserver* ObserverGate::Enter() {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::thread::id self = std::this_thread::get_id();
  left_.wait(lock, [&] { return depth_ == 0 || inside_ == self; });
  if (observer_ == nullptr) return nullptr;
  inside_ = self;
  ++depth_;
  return observer_;
}

void ObserverGate::Leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  --depth_;
  left_.notify_all();
}

absl::Status ObserverGate::Header(const FrameHeader& header) {
  ConnectionObserver* const observer = Enter();
  if (observer == nullptr) return absl::CancelledError("connection: nobody listens");
  absl::Status status = observer->OnHeader(header);
  Leave();
  return status;
}

void ObserverGate::Deliver(Frame frame) {
  ConnectionObserver* const observer = Enter();
  if (observer == nullptr) return;
  observer->OnFrame(std::move(frame));
  Leave();
}

void ObserverGate::Closed(const absl::Status& status) {
  ConnectionObserver* const observer = Enter();
  if (observer == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    observer_ = nullptr;
  }
  observer->OnClosed(status);
  Leave();
}

}  // namespace runnel
