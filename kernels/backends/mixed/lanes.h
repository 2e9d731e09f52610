#pragma once

// The threads of a stage's processors, and one run of segments over them.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace runnel {

// A thread for each processor but the host, whose work the caller does. Threads begin when there is
// work. Any thread.
class Lanes {
 public:
  using Task = std::function<void()>;

  explicit Lanes(size_t processors);
  // Waits for all tasks.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Tasks of one processor run one after the other. processor >= 1. std::system_error: there is no
  // thread.
  void Post(int processor, Task task);
  // Waits until all posted tasks are done.
  void WaitIdle();

 private:
  struct Lane {
    std::deque<Task> tasks;
    bool is_busy = false;
    std::thread thread;
  };
  void Run(Lane& lane);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by processor, the host's is idle; guarded by mutex_
  bool stopped_ = false;                      // guarded by mutex_
};

// Tasks of several lanes that wait for one another. The first that fails ends all: those that have
// not begun never do. Any thread.
class LaneRun {
 public:
  explicit LaneRun(size_t tasks) : states_(tasks) {}

  // Runs task number `task` here once those in `after` are done. Not at all if one has failed, or
  // if it was withdrawn.
  void Do(size_t task, const std::vector<size_t>& after, const std::function<absl::Status()>& work);
  // Called by a running task: from now on it touches memory of its own only.
  void LeaveCallersMemory(size_t task);
  // Waits until tasks [begin, end) are done or will never begin.
  void Wait(size_t begin, size_t end);
  // Withdraws those of tasks [begin, end) that have not begun; waits until the others have left the
  // caller's memory.
  void Withdraw(size_t begin, size_t end);
  // Whether it was begun, and not withdrawn.
  bool has_begun(size_t task) const;
  // The error of the task with the lowest number, a lost backend's before others. Throws a task's
  // exception.
  absl::Status status() const;

 private:
  struct State {
    bool has_begun = false;
    bool has_left = false;  // the caller's memory
    bool is_done = false;   // or never begins
    absl::Status status;
  };
  bool Begin(size_t task, const std::vector<size_t>& after);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;     // guarded by mutex_
  bool has_failed_ = false;       // guarded by mutex_
  std::exception_ptr exception_;  // guarded by mutex_
};

}  // namespace runnel
