#pragma once

// Values that other threads make before they are asked for: pictures that are decoded while others
// are trained on.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace runnel {

// Want, AreThere and Get: one thread at a time.
template <typename Value>
class ReadAhead {
 public:
  using ReadFn = std::function<Value(int64_t index)>;

  // read: a pure function of the index, called by any thread, several at once. Threads begin with
  // the first Want.
  explicit ReadAhead(ReadFn read) : read_(std::move(read)) {}
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // These are asked for next, in this order; all others are dropped.
  void Want(absl::Span<const int64_t> indices) {
    {
      const std::lock_guard lock(mutex_);
      const std::set<int64_t> wanted(indices.begin(), indices.end());
      std::erase_if(slots_, [&](const auto& slot) { return !wanted.contains(slot.first); });
      queue_.clear();
      for (const int64_t index : indices) {
        if (slots_[index].state == State::kWaits) queue_.push_back(index);
      }
    }
    changed_.notify_all();
    if (threads_.empty()) {
      const int64_t count =
          std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
      for (int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { Run(); });
    }
  }

  // Whether Get would give all of these at once.
  bool AreThere(absl::Span<const int64_t> indices) {
    const std::lock_guard lock(mutex_);
    return std::all_of(indices.begin(), indices.end(), [this](int64_t index) {
      const auto found = slots_.find(index);
      return found != slots_.end() && found->second.state == State::kIsThere;
    });
  }

  // What read gives. A value that is wanted and that no thread has begun is made by the caller's.
  std::shared_ptr<const Value> Get(int64_t index) {
    std::unique_lock lock(mutex_);
    const auto found = slots_.find(index);
    if (found == slots_.end()) {
      lock.unlock();
      return std::make_shared<const Value>(read_(index));
    }
    if (found->second.state == State::kWaits) Make(index, lock);
    changed_.wait(lock, [&] { return found->second.state == State::kIsThere; });
    return found->second.value;
  }

 private:
  static constexpr int64_t kMostThreads = 8;
  enum class State : uint8_t { kWaits, kIsMade, kIsThere };
  struct Slot {
    State state = State::kWaits;
    std::shared_ptr<const Value> value;
  };

  // Of a slot that waits. Unlocks meanwhile, when the slot may be dropped.
  void Make(int64_t index, std::unique_lock<std::mutex>& lock) {
    slots_[index].state = State::kIsMade;
    lock.unlock();
    auto value = std::make_shared<const Value>(read_(index));
    lock.lock();
    const auto found = slots_.find(index);
    if (found == slots_.end()) return;
    found->second = {State::kIsThere, std::move(value)};
    changed_.notify_all();
  }

  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
      if (ends_) return;
      const int64_t index = queue_.front();
      queue_.pop_front();
      const auto found = slots_.find(index);
      if (found != slots_.end() && found->second.state == State::kWaits) Make(index, lock);
    }
  }

  const ReadFn read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Slot> slots_;  // of the wanted indices; guarded by mutex_
  std::deque<int64_t> queue_;      // those that nobody has begun; guarded by mutex_
  bool ends_ = false;              // guarded by mutex_
  std::vector<std::thread> threads_;
};

// The values of these indices, one after the other, while the next ones are made.
template <typename Value>
class ReadInOrder {
 public:
  ReadInOrder(std::vector<int64_t> indices, typename ReadAhead<Value>::ReadFn read)
      : indices_(std::move(indices)), ahead_(std::move(read)) {}

  // At most once for each index.
  std::shared_ptr<const Value> Next() {
    if (next_ % kBlock == 0) ahead_.Want(absl::MakeConstSpan(indices_).subspan(next_, 2 * kBlock));
    return ahead_.Get(indices_[next_++]);
  }

 private:
  static constexpr size_t kBlock = 32;
  const std::vector<int64_t> indices_;
  size_t next_ = 0;
  ReadAhead<Value> ahead_;
};

}  // namespace runnel
