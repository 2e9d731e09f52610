#pragma once

// Progress of a running training, for people. A state machine: it is told the time and the state
// and returns text; it touches no terminal and no clock.

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace runnel {

struct ProgressState {
  int64_t epoch = 0;  // 0-based, of the batch that is trained
  int64_t epochs = 1;
  int64_t step_in_epoch = 0;  // batches of it that are done
  int64_t steps_per_epoch = 1;
  int64_t step = 0;     // done over the run
  int64_t steps = 1;    // steps of the whole run
  int64_t samples = 0;  // trained since the run's start; only differences count
  double loss = std::numeric_limits<double>::quiet_NaN();  // recent training loss; NaN: none yet
  std::vector<double> stage_busy;                          // shares in [0, 1], by stage
  // Progress of an evaluation by the stages, during which training waits, in micro-batches. Equal:
  // no evaluation.
  int64_t evaluated = 0;
  int64_t to_evaluate = 0;

  bool is_evaluating() const { return evaluated < to_evaluate; }
};

struct ProgressOptions {
  bool terminal = false;  // redraw one line; else plain lines
  int width = 80;         // columns of the terminal
  int64_t line_interval_ns = 5'000'000'000;
  int64_t redraw_interval_ns = 100'000'000;
};

// One thread at a time. All methods return the text to write, which may be empty.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options);

  // Whenever something may have changed, at any rate.
  std::string Update(int64_t now_ns, const ProgressState& state);
  // Text for an evaluation of the weights after `step` batches: a line of its own, at once.
  std::string Evaluation(int64_t now_ns, const ProgressState& state, int64_t step, double accuracy,
                         double loss);
  // Layers are on their way: so many bytes of so many have arrived. At any rate. what: "sending
  // layers". Plain lines begin after two seconds.
  std::string Transfer(int64_t now_ns, absl::string_view what, int64_t arrived_bytes,
                       int64_t total_bytes);
  // A line of somebody else's (a log line): the redrawn line makes room for it.
  std::string Line(int64_t now_ns, absl::string_view line);
  // Before a line that somebody else writes: clears the redrawn line, which the next update draws.
  std::string MakeWay() const;
  // Ends the redrawn line. Of a run that trained nothing no line stays: there was no progress.
  std::string Finish(int64_t now_ns, const ProgressState& state);

 private:
  struct Point {
    int64_t time_ns = 0;
    int64_t step = 0;
    int64_t samples = 0;
  };

  // A task with many parts: bytes to send, micro-batches to evaluate.
  struct Task {
    int64_t time_ns = 0;  // when it began, with so much done
    int64_t done = 0;
    int64_t total = 0;  // 0: none is under way
    bool is_shown = false;
  };

  void Observe(int64_t now_ns, const ProgressState& state);
  // Another task begins than the one that `task` is.
  static bool IsAnother(const Task& task, int64_t done, int64_t total);
  // "45 %, 0:30 left".
  std::string ShareText(const Task& task, int64_t done, int64_t total) const;
  // Seconds that the points span; 0: too few to tell a rate.
  double SpanSeconds() const;
  std::string StatusText(const ProgressState& state) const;
  std::string Redraw(const ProgressState& state);
  std::string Plain(absl::string_view text);

  ProgressOptions options_;
  std::optional<int64_t> first_step_;  // that was observed
  std::deque<Point> points_;  // at the start and wherever steps were done, of the last while
  Task transfer_;
  Task evaluation_;
  int64_t now_ns_ = 0;
  ProgressState last_;
  bool started_ = false;
  int64_t last_output_ns_ = 0;
};

// "1:02:03", "4:05"; "--" below zero.
std::string FormatDuration(double seconds);

}  // namespace runnel
