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

  // Calls fn(i) once for each i in [0, n), in any order and on any of the threads; returns when all
  // are done. What fn wrote is visible to the caller then. fn must not call ParallelFor.
  void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> fn);

 private:
  void Work();
  void TakeItems();

  std::mutex mutex_;
  std::condition_variable job_started_;
  std::condition_variable job_done_;
  // All below: written under mutex_. generation_ is also read without it while spinning.
  std::atomic<uint64_t> generation_ = 0;
  std::atomic<int> running_ = 0;  // workers that have not finished the present job
  bool stopping_ = false;
  int64_t items_ = 0;
  std::atomic<int64_t> next_ = 0;
  const absl::FunctionRef<void(int64_t)>* fn_ = nullptr;

  std::vector<std::thread> workers_;
};

}  // namespace runnel::cpu
