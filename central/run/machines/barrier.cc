#include "central/run/machines/barrier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

void Barrier::Grant(const ActivePlan& active, RunEffects& effects) {
  state_ = State::kTraining;
  step_ = std::min(options_.rule.Next(reached_), options_.stop_step);
  under_way_.clear();
  for (size_t i = 0; i < active.stages.size(); ++i) under_way_.insert(i);
  const Sequence limit = batching_.FirstSequence(step_);
  SendToStages(active, RunUntil{active.plan.generation, limit, std::exchange(changes_, {})},
               effects);
  effects.push_back(FeedUntil{limit});
}

bool Barrier::AddReached(size_t stage, const BarrierReached& reached, const ActivePlan& active) {
  if (state_ != State::kTraining || reached.generation != active.plan.generation) return false;
  if (reached.sequence != batching_.FirstSequence(step_)) return false;
  if (under_way_.erase(stage) == 0 || !under_way_.empty()) return false;
  reached_ns_ = reached.arrived_ns;
  return true;
}

void Barrier::GoBackTo(int64_t step) {
  if (begun()) state_ = State::kReached;
  step_ = reached_ = step;
  changes_.clear();
  under_way_.clear();
}

void Barrier::Arrive(int64_t at, RunEffects& effects) {
  state_ = State::kReached;
  step_ = reached_ = at;
  effects.push_back(Persist{BarrierPassed{at}});
}

bool Barrier::EvaluatesAt(int64_t step) const {
  return options_.eval_samples > 0 && (IsLast(step) || options_.rule.IsEvaluation(step));
}

void Barrier::BeginEvaluation(const ActivePlan& active, RunEffects& effects) {
  state_ = State::kEvaluating;
  const int64_t batch = options_.eval_batch_size;
  const int64_t micro_batches = (options_.eval_samples + batch - 1) / batch;
  evaluation_first_ = next_evaluation_;
  next_evaluation_ = Sequence(evaluation_first_.value() + micro_batches);
  SendToStages(active, EvaluateRequest{active.plan.generation, evaluation_first_, micro_batches},
               effects);
  effects.push_back(FeedEvaluation{evaluation_first_, micro_batches});
}

absl::StatusOr<bool> Barrier::AddEvaluation(const EvaluationDone& done, const ActivePlan& active,
                                            RunEffects& effects) {
  if (state_ != State::kEvaluating || done.generation != active.plan.generation) return false;
  if (done.first != evaluation_first_) return false;
  if (done.samples != options_.eval_samples) {
    return absl::InternalError(
        absl::StrCat("evaluated ", done.samples, " of ", options_.eval_samples, " samples"));
  }
  const int64_t labels = done.samples * options_.labels_per_sample;
  if (done.correct > labels) {
    return absl::InternalError(absl::StrCat(done.correct, " of ", labels, " labels are correct"));
  }
  state_ = State::kReached;
  effects.push_back(Persist{
      EvaluationRecorded{step_, static_cast<double>(done.correct) / static_cast<double>(labels),
                         done.loss_sum / static_cast<double>(done.samples), done.counts}});
  return true;
}

}  // namespace runnel
