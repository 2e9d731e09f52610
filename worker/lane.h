#pragma once

// A thread that carries out effects first in, first out.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace runnel {

class Lane {
 public:
  using Task = std::function<void()>;

  Lane() : thread_([this] { Run(); }) {}
  // Waits for the task that runs; drops the rest.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Any thread.
  void Post(Task task);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;  // guarded by mutex_
  bool stopped_ = false;    // guarded by mutex_
  std::thread thread_;
};

}  // namespace runnel
