#pragma once

// Carries out long work, first in, first out, beside an event loop, whose tasks take no time.
// ThreadLane is a thread; the lanes of a simulation take virtual time.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace runnel {

class Lane {
 public:
  using Task = std::function<void()>;

  // Waits for the task that runs; drops the rest.
  virtual ~Lane() = default;
  // Any thread.
  virtual void Post(Task task) = 0;
};

// The purpose of a lane.
enum class LaneKind : uint8_t { kCompute, kCodec, kWorkshop };
// Null is none: a thread for each lane.
using MakeLaneFn = std::function<std::unique_ptr<Lane>(LaneKind kind)>;
std::unique_ptr<Lane> MakeLane(const MakeLaneFn& make, LaneKind kind);

class ThreadLane final : public Lane {
 public:
  ThreadLane() : thread_([this] { Run(); }) {}
  ~ThreadLane() override;
  ThreadLane(const ThreadLane&) = delete;
  ThreadLane& operator=(const ThreadLane&) = delete;

  void Post(Task task) override;

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;  // guarded by mutex_
  bool stopped_ = false;    // guarded by mutex_
  std::thread thread_;
};

}  // namespace runnel
