#include "kernels/backends/cpu/thread_pool.h"

#include <cassert>
#include <chrono>

namespace runnel::cpu {
namespace {

// Longer than the gap between two kernels of a step, far shorter than a time slice. By the clock: a
// pause takes 1 ns on some processors and 45 ns on others.
constexpr std::chrono::microseconds kSpin{20};

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename Done>
void SpinUntil(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!done() && std::chrono::steady_clock::now() < end) Relax();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  assert(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    ++generation_;
  }
  job_started_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::TakeItems(int thread) {
  for (int64_t i = next_++; i < items_; i = next_++) (*fn_)(thread, i);
}

void ThreadPool::ParallelFor(int64_t n, absl::FunctionRef<void(int, int64_t)> fn) {
  if (workers_.empty() || n <= 1) {
    for (int64_t i = 0; i < n; ++i) fn(0, i);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fn_ = &fn;
    items_ = n;
    next_ = 0;
    open_ = true;
    ++generation_;
  }
  job_started_.notify_all();
  TakeItems(0);
  {
    // All items are taken: who has not joined yet has nothing to do here.
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
  }
  SpinUntil([this] { return joined_ == 0; });
  std::unique_lock<std::mutex> lock(mutex_);
  job_done_.wait(lock, [this] { return joined_ == 0; });
}

void ThreadPool::Work(int thread) {
  uint64_t seen = 0;
  while (true) {
    SpinUntil([&] { return generation_ != seen; });
    {
      std::unique_lock<std::mutex> lock(mutex_);
      job_started_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (stopping_) return;
      if (!open_) continue;
      ++joined_;
    }
    TakeItems(thread);
    bool last = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      last = --joined_ == 0;
    }
    if (last) job_done_.notify_one();
  }
}

}  // namespace runnel::cpu
