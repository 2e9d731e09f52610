#pragma once

// Runs the way from one barrier to the next: grants training up to it, waits for all stages to
// reach it, and evaluates there. Holds the run's position. Pure: events in, effects out.

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/barrier_report.h"
#include "central/run/machines/active_plan.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

struct BarrierOptions {
  BarrierRule rule;
  int64_t stop_step = 0;     // the last barrier, whatever the rule says
  int64_t eval_samples = 0;  // samples of the test set; 0: no evaluation
  int64_t eval_batch_size = 1;
  int64_t labels_per_sample = 1;
};

class Barrier {
 public:
  // first_step: where the run begins; > 0: it is resumed.
  Barrier(const BarrierOptions& options, const Batching& batching, int64_t first_step)
      : options_(options), batching_(batching), step_(first_step), reached_(first_step) {}

  // Decided at reached(), for the stages that stand there: goes out with the next grant.
  void Propose(const TrainingChange& change) { changes_.push_back(change); }
  // All stages stand at reached(): lets them train up to the barrier after it. changes: of the
  // training, in force there.
  void Grant(const ActivePlan& active, const std::vector<TrainingChange>& changes,
             RunEffects& effects);
  // True: `stage` was the last to reach step(); Arrive is due. Reports of other barriers or plans,
  // and those that come twice, count for nothing.
  bool AddReached(size_t stage, const BarrierReached& reached, const ActivePlan& active);
  // Behind everything that follows from one event: what is granted later, stages have stood for.
  void EndEvent() { is_there_just_now_ = false; }
  // A worker was lost: stages go back.
  void CountLoss() { ++pace_.losses; }
  // Training goes on from the barrier at `step`, which was reached before. What stages still report
  // of later ones counts for nothing.
  void GoBackTo(int64_t step);
  // All stages have reached step `at`: journals the barrier.
  void Arrive(int64_t at, RunEffects& effects);

  // Whether the rule evaluates at this barrier.
  bool EvaluatesAt(int64_t step) const;
  void BeginEvaluation(const ActivePlan& active, RunEffects& effects);
  // True: that was the evaluation, and it is journalled. Internal: of the wrong number of samples.
  absl::StatusOr<bool> AddEvaluation(const EvaluationDone& done, const ActivePlan& active,
                                     RunEffects& effects);

  bool IsBarrier(int64_t step, const std::vector<TrainingChange>& changes) const {
    return BarrierRuleUpTo(options_.rule, changes, step).IsBarrier(step);
  }
  bool IsLast(int64_t step) const { return step >= options_.stop_step; }
  bool training() const { return state_ == State::kTraining; }
  bool evaluating() const { return state_ == State::kEvaluating; }
  // Stages have been granted something, or stood at a barrier.
  bool begun() const { return state_ != State::kNotBegun; }
  // The barrier that was granted or reached last, in optimizer steps from the run's start.
  int64_t step() const { return step_; }
  // The last barrier that all stages have reached; when its last report came, by central's clock.
  int64_t reached() const { return reached_; }
  int64_t reached_ns() const { return reached_ns_; }
  // When the stages were last seen to stand there: when they reached it, or were evaluated there.
  int64_t standing_ns() const { return standing_ns_; }
  // As the stages' reports of barriers tell it.
  const RunPace& pace() const { return pace_; }
  Sequence reached_sequence() const { return batching_.FirstSequence(reached_); }
  const Batching& batching() const { return batching_; }

 private:
  enum class State : uint8_t { kNotBegun, kTraining, kReached, kEvaluating };

  // All stages stand at step_ now.
  void Measure(int64_t now_ns);

  BarrierOptions options_;
  Batching batching_;
  State state_ = State::kNotBegun;
  int64_t step_;
  int64_t reached_;
  int64_t reached_ns_ = 0;
  int64_t standing_ns_ = 0;
  int64_t first_reached_ns_ = 0;  // the first stage's report of the barrier under way
  // The stages have reached the barrier, or were evaluated there, in the event that is being handled.
  bool is_there_just_now_ = false;
  bool was_granted_at_once_ = false;  // so that the stretch under way is training alone
  RunPace pace_;
  std::vector<TrainingChange> changes_;
  std::set<size_t> under_way_;  // stages that have not reached it
  // Evaluation micro-batches have sequences of their own, counted over the run.
  Sequence evaluation_first_;
  Sequence next_evaluation_;
};

}  // namespace runnel
