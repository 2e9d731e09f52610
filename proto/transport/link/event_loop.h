#pragma once

// Owns a shell's state machines: everything that happens elsewhere (transport callbacks, lanes,
// timers) is posted here and runs one at a time, in order. ThreadLoop is a thread in real time;
// VirtualLoop (virtual_loop.h) is a node of a simulation.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "proto/base/clock.h"

namespace runnel {

class EventLoop {
 public:
  using Task = std::function<void()>;

  virtual ~EventLoop() = default;
  // Runs `task` on the loop's thread, after all tasks posted before. Any thread. Dropped once the
  // loop has ended.
  virtual void Post(Task task) = 0;
  // Runs `task` after `delay_ns`. Any thread.
  virtual void PostAfter(int64_t delay_ns, Task task) = 0;
  // The loop's time.
  virtual const Clock& clock() const = 0;
};

class ThreadLoop final : public EventLoop {
 public:
  // `clock` outlives the loop.
  explicit ThreadLoop(const Clock* clock) : clock_(clock) {}

  void Post(Task task) override;
  void PostAfter(int64_t delay_ns, Task task) override;
  const Clock& clock() const override { return *clock_; }
  // Runs tasks on the calling thread until Stop().
  void Run();
  // Lets Run return after the current task; queued tasks are dropped. Any thread.
  void Stop();

 private:
  const Clock* clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;               // guarded by mutex_
  std::multimap<int64_t, Task> timers_;  // by time; guarded by mutex_
  bool stopped_ = false;                 // guarded by mutex_
};

}  // namespace runnel
