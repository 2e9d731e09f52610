#pragma once

// States of barriers: collected beside the training (state_collection.h), and those of them
// evaluated that somebody asked for (evaluations_beside.h).

#include <cstdint>
#include <utility>

#include "central/run/machines/active_plan.h"
#include "central/run/machines/evaluations_beside.h"
#include "central/run/machines/run_effects.h"
#include "central/run/machines/state_collection.h"

namespace runnel {

// Pure: events in, effects out.
class BarrierStates {
 public:
  BarrierStates(StateCollection collection, EvaluationsBeside evaluations)
      : collection_(std::move(collection)), evaluations_(std::move(evaluations)) {}

  // As StateCollection's; an evaluation of the state is under way from now on, if it is used so.
  void Request(int64_t step, const StateUse& use, const ActivePlan& active, RunEffects& effects) {
    if (use.evaluation) evaluations_.Begin(step, active.plan.generation);
    collection_.Request(step, use, active, effects);
  }
  // Training goes back from barrier `from` to `step`.
  void GoBack(int64_t from, int64_t step) {
    collection_.GoBack(from, step);
    evaluations_.GoBackTo(step);
  }

  StateCollection& collection() { return collection_; }
  const StateCollection& collection() const { return collection_; }
  EvaluationsBeside& evaluations() { return evaluations_; }
  const EvaluationsBeside& evaluations() const { return evaluations_; }

 private:
  StateCollection collection_;
  EvaluationsBeside evaluations_;
};

}  // namespace runnel
