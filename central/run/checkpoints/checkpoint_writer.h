#pragma once

// Writes check-points on a thread of its own: a slow disk holds back neither the feed of samples
// nor the barriers.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/records/checkpoint.h"

namespace runnel {

// The result of writing a check-point.
struct CheckpointEnd {
  int64_t step = 0;
  absl::Status status;  // why it could not be written
  std::string path;     // empty with an OK status: left out, because a newer one came meanwhile
};

class CheckpointWriter {
 public:
  // Gives the path. Called on the writer's thread, one at a time.
  using Write = std::function<absl::StatusOr<std::string>(const Checkpoint&)>;
  // Called exactly once a check-point, on the thread that wrote it or left it out: the writer's or
  // the caller's of Add.
  using OnEnd = std::function<void(CheckpointEnd)>;

  CheckpointWriter(Write write, OnEnd on_end);
  // Writes what waits, then ends.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;

  // Check-points are written in the order in which they came. A resumable one that still waits when
  // a newer resumable one comes is left out, so that at most three states are in memory: the one
  // that is being written, a resumable one and the run's last. Any thread.
  void Add(Checkpoint checkpoint);

 private:
  void Run();

  const Write write_;
  const OnEnd on_end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Checkpoint> waiting_;  // guarded by mutex_
  bool ending_ = false;             // guarded by mutex_
  std::thread thread_;              // last: it uses the others
};

}  // namespace runnel
