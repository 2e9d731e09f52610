#include "central/run/checkpoints/checkpoint_writer.h"

#include <optional>
#include <utility>

namespace runnel {

CheckpointWriter::CheckpointWriter(Write write, OnEnd on_end)
    : write_(std::move(write)), on_end_(std::move(on_end)), thread_([this] { Run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CheckpointWriter::Add(Checkpoint checkpoint) {
  std::optional<int64_t> left_out;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool replaces = checkpoint.resumable && !waiting_.empty() && waiting_.back().resumable;
    if (replaces) {
      left_out = waiting_.back().step;
      waiting_.back() = std::move(checkpoint);
    } else {
      waiting_.push_back(std::move(checkpoint));
    }
  }
  changed_.notify_one();
  if (left_out.has_value()) on_end_({*left_out, absl::OkStatus(), ""});
}

void CheckpointWriter::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Checkpoint checkpoint = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    absl::StatusOr<std::string> path = write_(checkpoint);
    on_end_({checkpoint.step, path.status(), path.ok() ? *std::move(path) : ""});
    lock.lock();
  }
}

}  // namespace runnel
