#pragma once

// What a run has been through, in bounded memory however long it lasts: its loss, its evaluations,
// how busy its stages were, its last two plans and its last events. One thread at a time.

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "central/display/run_view.h"

namespace runnel {

// Of values by step: beyond kMaxPoints, each two neighbours become one.
class LossCurve {
 public:
  static constexpr size_t kMaxPoints = 600;
  struct Point {
    int64_t step = 0;  // the first
    int64_t count = 0;
    double mean = 0;
    double low = 0;
    double high = 0;
  };

  // Steps ascend; what does not is left out.
  void Add(int64_t step, double value);
  void GoBackTo(int64_t step);
  const std::vector<Point>& points() const { return points_; }

 private:
  static void Merge(const Point& next, Point& into);

  std::vector<Point> points_;
  int64_t last_step_ = -1;
  int64_t span_ = 1;  // steps of a point
};

// What each stage did, as shares of the time, in slices of at least kSliceSeconds.
class BusyHistory {
 public:
  static constexpr size_t kMaxSlices = 240;
  static constexpr double kSliceSeconds = 2;
  struct Slice {
    double end_s = 0;  // of the training time
    double seconds = 0;
    int64_t generation = 0;
    // By stage. Forward and backward are of busy; the rest of it are updates, and evaluations of a
    // plain loop. send: the time that the links take to whom the stage sends, the longer one of two.
    std::vector<double> busy = {};
    std::vector<double> forward = {};
    std::vector<double> backward = {};
    std::vector<double> wait = {};
    std::vector<double> send = {};
  };

  void Add(const RunView& view);
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  void Halve();

  std::vector<Slice> slices_;
  double span_s_ = kSliceSeconds;
  RunView begin_;  // of the slice under way
};

enum class EventKind : uint8_t {
  kNote,
  kWarning,
  kLost,
  kPlan,
  kCheckpoint,
  kCheckpointFailed,
  kTraining,  // something of the training was changed
  kFailed,    // the run
};
inline constexpr absl::string_view kEventKinds[] = {
    "note", "warning", "lost", "plan", "checkpoint", "checkpoint_failed", "training", "failed"};
inline absl::string_view Name(EventKind kind) { return kEventKinds[static_cast<int>(kind)]; }

struct RunEvent {
  EventKind kind = EventKind::kNote;
  int64_t step = 0;
  std::string what;
  std::string why = {};
  double unix_s = 0;  // when, set by who adds it
};

// The last kMaxEvents, of check-points the newest alone; and how many of each kind there were.
class EventLog {
 public:
  static constexpr size_t kMaxEvents = 100;

  // A line of the log about the event before or after it is left out.
  void Add(RunEvent event);
  const std::deque<RunEvent>& events() const { return events_; }
  int64_t count(EventKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  // When, and at which step, a check-point was written last; step -1: never.
  const RunEvent& newest_checkpoint() const { return newest_checkpoint_; }

 private:
  std::deque<RunEvent> events_;
  std::array<int64_t, std::size(kEventKinds)> counts_ = {};
  RunEvent newest_checkpoint_ = {EventKind::kCheckpoint, -1, ""};
};

struct PlanShown {
  struct Stage {
    std::string device;
    int first_layer = 0;
    int last_layer = 0;
  };
  int64_t generation = 0;
  int64_t from_step = 0;
  std::string why;    // empty: nothing is known
  std::string links;  // what they were taken for
  std::vector<Stage> stages;
};

struct RunHistory {
  LossCurve loss;
  BusyHistory busy;
  EventLog log;
  std::vector<EvaluationSummary> evaluations;
  std::vector<PlanShown> plans;  // the one that holds, the one before it
  int64_t samples = 0;           // trained, what was trained again included
  double step_unix_s = 0;        // when a step was done last; 0: none yet

  // A view that was taken at this time.
  void Add(const RunView& view, double unix_s);
  void AddPlan(PlanShown plan);
  // Training goes on from here: what was evaluated later is void.
  void GoBackTo(int64_t step);

 private:
  ProgressState last_ = {};
};

// All that is shown of a run, as it was `age_s` before `unix_s`.
struct ShownRun {
  RunFacts facts;
  RunView view;
  RunHistory history;
  double unix_s = 0;
  double age_s = 0;
};

}  // namespace runnel
