#pragma once

// Evaluations of collected states beside the training (evaluator.h), which waits for none of them
// but the last one. Pure: events in, effects out.

#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "central/run/machines/evaluation_pace.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

class EvaluationsBeside {
 public:
  // Evaluations under way: each holds a state of the whole model.
  static constexpr size_t kMost = 2;

  enum class Answer : uint8_t {
    kIgnored,   // no longer wanted
    kRecorded,  // journalled
    kFailed     // is_due() until another begins; after two in a row is_on() is false
  };

  // is_on: false: evaluations go through the pipeline.
  EvaluationsBeside(bool is_on, EvaluationPaceOptions pace, int64_t first_step)
      : is_on_(is_on), pace_(std::move(pace), first_step) {}

  // Whether to evaluate at a barrier where the rule does: EvaluationPace::IsWorth.
  bool IsWorth(const BarrierReport& report, double samples_per_s, RunEffects& effects) {
    return is_on_ && pace_.IsWorth(report, samples_per_s, effects);
  }
  // The state of this step is collected for one, from the plan of this generation.
  void Begin(int64_t step, Generation generation) {
    under_way_[step] = generation;
    is_due_ = false;
  }
  Answer Add(int64_t step, Generation generation, const absl::StatusOr<EvaluationFigures>& figures,
             RunEffects& effects);
  // Training goes on from this step: evaluations of later steps are void.
  void GoBackTo(int64_t step) {
    pace_.GoBackTo(step);
    std::erase_if(under_way_, [step](const auto& entry) { return entry.first > step; });
  }

  bool is_on() const { return is_on_; }
  // One failed: the next barrier evaluates in its place, beside the training or, if that is no more
  // on, through the pipeline.
  bool is_due() const { return is_due_; }
  void BeginThroughPipeline() { is_due_ = false; }
  double lost_seconds() const { return pace_.lost_seconds(); }
  bool is_full() const { return under_way_.size() >= kMost; }
  int64_t under_way() const { return static_cast<int64_t>(under_way_.size()); }

 private:
  bool is_on_;
  bool is_due_ = false;
  bool failed_last_ = false;
  EvaluationPace pace_;
  std::map<int64_t, Generation> under_way_;  // by step
};

}  // namespace runnel
