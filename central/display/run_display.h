#pragma once

// Everything that shows a running training: the terminal, the metrics and the page's state.

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "central/display/progress.h"
#include "central/display/run_metrics.h"
#include "central/display/run_view.h"
#include "proto/base/clock.h"

namespace runnel {

class RunDisplay {
 public:
  // `out` is a file descriptor, -1 shows nothing there; `metrics` may be null. Both and the clock
  // are borrowed.
  RunDisplay(const ProgressOptions& options, int out, MetricsSink* metrics, const Clock* clock);

  // Called on the trainer's thread.
  void Update(const RunView& view);
  // Shows an evaluation of the weights after `step`; the run may be further.
  void Evaluation(const RunView& view, int64_t step, double accuracy, double loss);
  // Shows a transfer, as Progress::Transfer.
  void Transfer(const std::string& what, int64_t arrived_bytes, int64_t total_bytes);
  void Line(const std::string& text);
  // Clears the progress of a terminal, since somebody else is about to write a line there.
  void MakeWay();
  void Finish(const RunView& view);

  // Any thread: what admin_server.h's page draws.
  std::string StateJson() const;
  bool ready() const { return ready_; }
  // The trainer's thread, which calls Transfer many times a second, has done so lately, or has not
  // begun.
  bool alive() const;

 private:
  void Write(const std::string& text);
  void Publish(const RunView& view);

  Progress progress_;
  int out_;
  RunMetrics metrics_;
  const Clock* clock_;
  std::atomic<bool> ready_ = false;
  std::atomic<int64_t> turned_ns_ = 0;  // the last Transfer; 0: none
  std::optional<double> accuracy_;      // of the last evaluation
  std::deque<std::pair<int64_t, double>> losses_;
  mutable std::mutex mutex_;
  std::string state_json_ = "{}";  // guarded by mutex_
};

}  // namespace runnel
