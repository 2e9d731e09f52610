#include "proto/transport/link/event_loop.h"

#include <chrono>

namespace runnel {

void ThreadLoop::Post(Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return;
  tasks_.push_back(std::move(task));
  wake_.notify_one();
}

void ThreadLoop::PostAfter(int64_t delay_ns, Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return;
  timers_.emplace(clock_->NowNanos() + delay_ns, std::move(task));
  wake_.notify_one();
}

void ThreadLoop::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  wake_.notify_one();
}

void ThreadLoop::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped_) {
    const int64_t now = clock_->NowNanos();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      tasks_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // destroys the task's captures without the lock
      lock.lock();
      continue;
    }
    if (timers_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, std::chrono::nanoseconds(timers_.begin()->first - now));
    }
  }
  // Tasks may own objects that post when they go: destroy them without the lock.
  auto tasks = std::exchange(tasks_, {});
  auto timers = std::exchange(timers_, {});
  lock.unlock();
}

}  // namespace runnel
