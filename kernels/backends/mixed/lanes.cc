#include "kernels/backends/mixed/lanes.h"

#include <algorithm>
#include <utility>

#include "kernels/backends/lost_backend.h"

namespace runnel {

Lanes::Lanes(size_t processors) {
  for (size_t i = 0; i < processors; ++i) lanes_.push_back(std::make_unique<Lane>());
}

Lanes::~Lanes() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

void Lanes::Post(int processor, Task task) {
  {
    const std::lock_guard lock(mutex_);
    Lane& lane = *lanes_[static_cast<size_t>(processor)];
    if (!lane.thread.joinable()) lane.thread = std::thread([this, &lane] { Run(lane); });
    lane.tasks.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Lanes::WaitIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const std::unique_ptr<Lane>& lane) {
      return lane->tasks.empty() && !lane->is_busy;
    });
  });
}

void Lanes::Run(Lane& lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || !lane.tasks.empty(); });
    if (lane.tasks.empty()) return;
    Task task = std::move(lane.tasks.front());
    lane.tasks.pop_front();
    lane.is_busy = true;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    lane.is_busy = false;
    changed_.notify_all();
  }
}

bool LaneRun::Begin(size_t task, const std::vector<size_t>& after) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return has_failed_ || states_[task].is_done ||
           std::all_of(after.begin(), after.end(), [&](size_t i) { return states_[i].is_done; });
  });
  State& state = states_[task];
  if (!state.is_done && !has_failed_) return state.has_begun = true;
  state.is_done = true;
  changed_.notify_all();
  return false;
}

void LaneRun::Do(size_t task, const std::vector<size_t>& after,
                 const std::function<absl::Status()>& work) {
  if (!Begin(task, after)) return;
  absl::Status status;
  std::exception_ptr exception;
  try {
    status = work();
  } catch (...) {  // memory that ends, for the caller to handle as his own
    exception = std::current_exception();
  }
  // Under the lock: who waits may destroy this as soon as it is released.
  const std::lock_guard lock(mutex_);
  State& state = states_[task];
  state.is_done = state.has_left = true;
  has_failed_ = has_failed_ || !status.ok() || exception != nullptr;
  state.status = std::move(status);
  if (exception != nullptr) exception_ = exception;
  changed_.notify_all();
}

void LaneRun::LeaveCallersMemory(size_t task) {
  const std::lock_guard lock(mutex_);
  states_[task].has_left = true;
  changed_.notify_all();
}

void LaneRun::Wait(size_t begin, size_t end) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::all_of(states_.begin() + static_cast<std::ptrdiff_t>(begin),
                       states_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const State& state) { return state.is_done; });
  });
}

void LaneRun::Withdraw(size_t begin, size_t end) {
  std::unique_lock lock(mutex_);
  for (size_t i = begin; i < end; ++i) {
    if (!states_[i].has_begun) states_[i].is_done = true;
  }
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return std::all_of(states_.begin() + static_cast<std::ptrdiff_t>(begin),
                       states_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const State& state) { return state.is_done || state.has_left; });
  });
}

bool LaneRun::has_begun(size_t task) const {
  const std::lock_guard lock(mutex_);
  return states_[task].has_begun;
}

absl::Status LaneRun::status() const {
  const std::lock_guard lock(mutex_);
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  absl::Status first;
  for (const State& state : states_) {
    if (state.status.ok()) continue;
    if (LostBackendOf(state.status).has_value()) return state.status;
    if (first.ok()) first = state.status;
  }
  return first;
}

}  // namespace runnel
