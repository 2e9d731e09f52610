#pragma once

// Threads for the loops of one compute lane.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace runnel::cpu {

// A fixed set of threads. One caller at a time; the calling thread takes part. With threads = 1
// there are no threads and everything runs inline.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // >= 1, the caller included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(thread, i) once for each i in [0, n), in any order; returns when all are done.
  // `thread` is in [0, threads()), and no two calls at a time have the same one. A thread takes the
  // next item when it is done with one, so a slow core gets fewer; one that does not run at all is
  // not waited for. What fn wrote is visible to the caller then. fn must not call ParallelFor.
  void ParallelFor(int64_t n, absl::FunctionRef<void(int, int64_t)> fn);

 private:
  void Work(int thread);
  void TakeItems(int thread);

  std::mutex mutex_;
  std::condition_variable job_started_;
  std::condition_variable job_done_;
  // All members below but next_ are written under mutex_. Atomics are also read without it.
  std::atomic<uint64_t> generation_ = 0;
  bool open_ = false;            // threads may still join the present job
  std::atomic<int> joined_ = 0;  // threads in the present job, the caller not counted
  bool stopping_ = false;
  int64_t items_ = 0;
  std::atomic<int64_t> next_ = 0;  // item that nobody has taken
  const absl::FunctionRef<void(int, int64_t)>* fn_ = nullptr;

  std::vector<std::thread> workers_;
};

}  // namespace runnel::cpu
