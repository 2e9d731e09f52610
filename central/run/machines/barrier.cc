#include "central/run/machines/barrier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

void Barrier::Grant(const ActivePlan& active, const std::vector<TrainingChange>& changes,
                    RunEffects& effects) {
  state_ = State::kTraining;
  was_granted_at_once_ = std::exchange(is_there_just_now_, false);
  const BarrierRule rule = BarrierRuleBehind(options_.rule, changes, reached_);
  step_ = std::min(rule.Next(reached_), options_.stop_step);
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
  const size_t missing = under_way_.size();
  if (under_way_.erase(stage) == 0) return false;
  if (missing == active.stages.size()) first_reached_ns_ = reached.arrived_ns;
  if (!under_way_.empty()) return false;
  Measure(reached.arrived_ns);
  reached_ns_ = standing_ns_ = reached.arrived_ns;
  is_there_just_now_ = true;
  return true;
}

// The last stage drains first. Until the first one has too, and again until the last one has
// something to do, stages stand.
void Barrier::Measure(int64_t now_ns) {
  constexpr double kNs = 1e-9;
  // One barrier in a hurry must not move all that follow.
  constexpr double kWeight = 0.25;
  const auto follow = [](double now, double& mean) {
    mean = mean == 0 ? now : mean + kWeight * (now - mean);
  };
  follow(2 * static_cast<double>(now_ns - first_reached_ns_) * kNs, pace_.barrier_seconds);
  if (!was_granted_at_once_ || step_ <= reached_) return;
  const double seconds = static_cast<double>(now_ns - standing_ns_) * kNs;
  pace_.trained_seconds += seconds;
  follow(seconds / static_cast<double>(step_ - reached_), pace_.step_seconds);
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
  // The pipeline is as empty as at the stages' reports, so that what follows is training alone.
  standing_ns_ = done.arrived_ns;
  is_there_just_now_ = true;
  effects.push_back(Persist{
      EvaluationRecorded{step_, static_cast<double>(done.correct) / static_cast<double>(labels),
                         done.loss_sum / static_cast<double>(done.samples), done.counts}});
  return true;
}

}  // namespace runnel
