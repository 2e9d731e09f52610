#pragma once

// Time for the in-process transports: things to do later. Real time on a thread (loopback, pacing)
// or virtual time by hand (simulated).

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "proto/base/clock.h"

namespace runnel {

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual int64_t NowNanos() const = 0;
  // Runs `task` at `time_ns` or as soon as that is past; tasks of one time in order of scheduling,
  // one at a time. Never within this call.
  virtual void ScheduleAt(int64_t time_ns, std::function<void()> task) = 0;
};

// One thread and the monotonic clock. Thread-safe; destroyed on another thread than its own.
class ThreadScheduler final : public Scheduler {
 public:
  ThreadScheduler() = default;
  ~ThreadScheduler() override { Stop(); }
  ThreadScheduler(const ThreadScheduler&) = delete;
  ThreadScheduler& operator=(const ThreadScheduler&) = delete;

  int64_t NowNanos() const override { return clock_.NowNanos(); }
  // The first task starts the thread. After Stop(): no effect.
  void ScheduleAt(int64_t time_ns, std::function<void()> task) override;
  // Ends the thread; what has not run is dropped.
  void Stop();

 private:
  void Run();

  MonotonicClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<int64_t, std::function<void()>> tasks_;  // guarded by mutex_
  bool stopped_ = false;                                 // guarded by mutex_
  std::thread thread_;                                   // guarded by mutex_
};

}  // namespace runnel
