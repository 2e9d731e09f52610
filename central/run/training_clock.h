#pragma once

// How long a run has trained: the time between each grant and its barrier, on the wall and of
// central's own processor time. One thread.

#include <cstdint>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/host/processor_time.h"

namespace runnel {

class TrainingClock {
 public:
  // `clock` outlives this. The run begins now.
  explicit TrainingClock(const Clock* clock) : clock_(clock), begin_ns_(clock->NowNanos()) {}

  // The stages train from now on.
  void Start() {
    since_ns_ = clock_->NowNanos();
    processor_time_.Resume();
  }
  // They stand at a barrier, or the run is over.
  void Stop() {
    if (since_ns_ == 0) return;
    processor_time_.Pause();
    trained_ns_ += clock_->NowNanos() - std::exchange(since_ns_, 0);
  }
  // They stand for an evaluation, from now on and then no more.
  void StartEvaluation() { evaluates_since_ns_ = clock_->NowNanos(); }
  void StopEvaluation() {
    if (evaluates_since_ns_ != 0)
      evaluated_ns_ += clock_->NowNanos() - std::exchange(evaluates_since_ns_, 0);
  }
  int64_t evaluated_ns() const { return evaluated_ns_; }
  // Another plan holds from now on.
  void StartPlan() { plan_begin_ns_ = training_ns(); }

  int64_t training_ns() const {
    return trained_ns_ + (since_ns_ == 0 ? 0 : clock_->NowNanos() - since_ns_);
  }
  // Of it, since the plan holds.
  int64_t plan_ns() const { return training_ns() - plan_begin_ns_; }
  // Of it, what central's own process had of processors.
  int64_t processor_ns() const { return processor_time_.ns(); }
  // Since the run began, trained or not.
  int64_t wall_ns() const { return clock_->NowNanos() - begin_ns_; }

 private:
  const Clock* clock_;
  int64_t begin_ns_;
  int64_t trained_ns_ = 0;          // up to the last Stop
  int64_t since_ns_ = 0;            // 0: stopped
  int64_t plan_begin_ns_ = 0;       // on training_ns
  int64_t evaluated_ns_ = 0;        // up to the last StopEvaluation
  int64_t evaluates_since_ns_ = 0;  // 0: they do not
  ProcessorTime processor_time_;
};

}  // namespace runnel
