#pragma once

// The thread that owns a shell's state machines: everything that happens elsewhere (transport
// callbacks, lanes, timers) is posted here and runs one at a time, in order.

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

  // `clock` outlives the loop.
  explicit EventLoop(const Clock* clock) : clock_(clock) {}

  // Runs `task` on the loop's thread, after what was posted before. Any thread. Dropped after
  // Stop().
  void Post(Task task);
  // Runs `task` after `delay_ns`. Any thread.
  void PostAfter(int64_t delay_ns, Task task);
  // Runs tasks on the calling thread until Stop().
  void Run();
  // Lets Run return after the task that runs now; what is queued is dropped. Any thread.
  void Stop();

  const Clock& clock() const { return *clock_; }

 private:
  const Clock* clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;               // guarded by mutex_
  std::multimap<int64_t, Task> timers_;  // by time; guarded by mutex_
  bool stopped_ = false;                 // guarded by mutex_
};

}  // namespace runnel
