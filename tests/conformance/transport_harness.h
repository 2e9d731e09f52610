#pragma once

// What the conformance suite of transports needs of each: a row in AllTransports() with a few lines
// of code behind it.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "proto/transport/link/transport.h"
#include "tests/support/in_process/in_process.h"
#include "tests/transport/test_frames.h"

namespace runnel {

// Two nodes of a transport, and how its time passes. The test's thread is the main loop: what
// transport threads report is posted to it.
class TransportLab {
 public:
  // Nothing in the suite takes longer, even under a sanitizer: the tripwire.
  static constexpr std::chrono::seconds kDeadline{60};

  virtual ~TransportLab() = default;
  virtual Transport& dialler() = 0;
  virtual Transport& acceptor() = 0;
  virtual int64_t NowNanos() const = 0;
  // Blocks that receiving has taken from a pool so far.
  virtual int64_t blocks_made() const { return 0; }
  // Breaks what still stands.
  virtual void DestroyTransports() = 0;

  // Any thread: `task` runs within RunUntil, in order.
  void Post(std::function<void()> task);
  // Runs tasks, and the transport's time, until `done`; tested after each task. False: never.
  bool RunUntil(const std::function<bool()>& done);

 protected:
  // Virtual time: runs an event, false if there is none. Real time: nothing to do.
  virtual bool Step() { return false; }
  virtual bool has_threads() const { return true; }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
};

struct TransportRow {
  std::string name;
  std::function<std::unique_ptr<TransportLab>()> make;

  friend void PrintTo(const TransportRow& row, std::ostream* out) { *out << row.name; }
};
std::vector<TransportRow> AllTransports();
std::unique_ptr<TransportLab> MakeSimulatedLab(const InProcessFaults& faults);

// Writes down what happens on one connection. Read it on the lab's loop only.
class Recorder final : public ConnectionObserver {
 public:
  explicit Recorder(TransportLab* lab) : lab_(lab) {}

  // On the transport's thread, before the event is written down. Set before there are events.
  std::function<absl::Status(const FrameHeader&)> on_header;
  std::function<void(const Frame&)> on_frame;

  const std::vector<Frame>& frames() const { return frames_; }
  bool closed() const { return !closed_.empty(); }
  // Of the one OnClosed; Internal if there was none or more.
  absl::Status status() const;
  // Calls after OnClosed, or at the same time as another: none in a working transport.
  int violations() const;
  // OnClosed calls, as soon as they have been made.
  int closed_calls() const;

  absl::Status OnHeader(const FrameHeader& header) override;
  void OnFrame(Frame frame) override;
  void OnClosed(const absl::Status& status) override;

 private:
  void Enter();
  void Leave();

  TransportLab* const lab_;
  mutable std::mutex mutex_;
  bool inside_ = false;   // guarded by mutex_
  int closed_calls_ = 0;  // guarded by mutex_
  int violations_ = 0;    // guarded by mutex_
  std::vector<Frame> frames_;
  std::vector<absl::Status> closed_;
};

}  // namespace runnel
