#include "proto/transport/grpc/data/grpc_calls.h"

namespace runnel {

void LiveCalls::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++calls_;
}

void LiveCalls::Gone() {
  std::lock_guard<std::mutex> lock(mutex_);
  --calls_;
  gone_.notify_all();
}

bool LiveCalls::Add(const std::shared_ptr<GrpcStream>& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
  streams_.push_back(stream);
  return !aborted_;
}

void LiveCalls::Abort(const absl::Status& status) {
  std::vector<std::weak_ptr<GrpcStream>> streams;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    streams.swap(streams_);
  }
  for (const auto& weak : streams) {
    if (const auto stream = weak.lock()) stream->Abort(status);
  }
}

void LiveCalls::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  gone_.wait(lock, [this] { return calls_ == 0; });
}

}  // namespace runnel
