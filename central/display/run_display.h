#pragma once

// Everything that shows a running training: the terminal, the metrics, the page and its report.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "central/display/progress.h"
#include "central/display/run_history.h"
#include "central/display/run_view.h"
#include "proto/base/clock.h"

namespace runnel {

class RunDisplay {
 public:
  // `out` is a file descriptor, -1 shows nothing there. The clock is borrowed.
  RunDisplay(const ProgressOptions& options, int out, const Clock* clock);

  // Called on the trainer's thread.
  void Begin(RunFacts facts);
  // Shows a run that trains.
  void Update(const RunView& view);
  // Shows one that does not, but on the terminal (Transfer).
  void Stand(const RunView& view);
  // Shows an evaluation of the weights after `step`; the run may be further.
  void Evaluation(const RunView& view, int64_t step, double accuracy, double loss);
  // Shows a transfer, as Progress::Transfer.
  void Transfer(const std::string& what, int64_t arrived_bytes, int64_t total_bytes);
  void Line(const std::string& text);
  // Clears the progress of a terminal, since somebody else is about to write a line there.
  void MakeWay();
  void Finish(const RunView& view);
  // For the page and the metrics alone.
  void AddPlan(PlanShown plan);
  void AddEvent(RunEvent event);
  void GoBackTo(int64_t step);

  // Any thread.
  ShownRun Shown() const;
  bool ready() const { return ready_; }
  // The trainer's thread, which calls Transfer many times a second, has done so lately, has not
  // begun, or is done.
  bool alive() const;

 private:
  void Write(const std::string& text);
  void Keep(const RunView& view);

  Progress progress_;
  int out_;
  const Clock* clock_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> done_ = false;
  std::atomic<int64_t> turned_ns_ = 0;  // the last Transfer; 0: none
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  RunFacts facts_;
  RunView view_;
  RunHistory history_;
  int64_t view_ns_ = 0;  // when it was taken; 0: there is none
};

}  // namespace runnel
