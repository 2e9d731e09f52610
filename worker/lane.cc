#include "worker/lane.h"

#include <utility>

namespace runnel {

std::unique_ptr<Lane> MakeLane(const MakeLaneFn& make, LaneKind kind) {
  return make == nullptr ? std::make_unique<ThreadLane>() : make(kind);
}

ThreadLane::~ThreadLane() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void ThreadLane::Post(Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  wake_.notify_one();
}

void ThreadLane::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
    if (stopped_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace runnel
