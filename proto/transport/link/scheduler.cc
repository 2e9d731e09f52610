#include "proto/transport/link/scheduler.h"

#include <chrono>

namespace runnel {

void ThreadScheduler::ScheduleAt(int64_t time_ns, std::function<void()> task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return;
  tasks_.emplace(time_ns, std::move(task));
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.notify_one();
}

void ThreadScheduler::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped_) {
    if (tasks_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const int64_t wait_ns = tasks_.begin()->first - clock_.NowNanos();
    if (wait_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
      continue;
    }
    {
      const auto task = tasks_.extract(tasks_.begin());
      lock.unlock();
      task.mapped()();
      // The task's captures are destroyed here, without the lock.
    }
    lock.lock();
  }
}

void ThreadScheduler::Stop() {
  std::thread thread;
  std::multimap<int64_t, std::function<void()>> dropped;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
    changed_.notify_one();
  }
  if (thread.joinable()) thread.join();
  std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(tasks_);
}

}  // namespace runnel
