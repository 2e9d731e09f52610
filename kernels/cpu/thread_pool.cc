#include "kernels/cpu/thread_pool.h"

#include <cassert>

namespace runnel::cpu {
namespace {

// About 20 us: longer than the gap between two kernels of a step, far shorter than a time slice.
constexpr int kSpins = 2000;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  assert(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
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

void ThreadPool::TakeItems() {
  for (int64_t i = next_++; i < items_; i = next_++) (*fn_)(i);
}

void ThreadPool::ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> fn) {
  if (workers_.empty() || n <= 1) {
    for (int64_t i = 0; i < n; ++i) fn(i);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fn_ = &fn;
    items_ = n;
    next_ = 0;
    running_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  job_started_.notify_all();
  TakeItems();
  for (int i = 0; i < kSpins && running_ > 0; ++i) Relax();
  std::unique_lock<std::mutex> lock(mutex_);
  job_done_.wait(lock, [this] { return running_ == 0; });
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  while (true) {
    for (int i = 0; i < kSpins && generation_ == seen; ++i) Relax();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      job_started_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (stopping_) return;
    }
    TakeItems();
    bool last = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      last = --running_ == 0;
    }
    if (last) job_done_.notify_one();
  }
}

}  // namespace runnel::cpu
