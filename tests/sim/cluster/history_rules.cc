#include "tests/sim/cluster/history_rules.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr size_t kMostKept = 4096;  // control messages of a stream that is broken

}  // namespace

void HistoryRules::Check(const JournalRecord& record) {
  std::visit([this](const auto& one) { CheckRecord(one); }, record);
}

void HistoryRules::CheckRecord(const PlanDecided& decided) {
  if (decided.plan.generation <= last_generation_) {
    world_.Violate(absl::StrCat("generation ", decided.plan.generation.value(),
                                " is used after generation ", last_generation_.value()));
  }
  if (reached_.count(decided.from_step) == 0) {
    world_.Violate(
        absl::StrCat("a plan begins at step ", decided.from_step, ", which was not reached"));
    return;
  }
  last_generation_ = decided.plan.generation;
  plan_ = decided.plan;
  step_ = decided.from_step;
  oracle_.SetPlan(decided.from_step, decided.plan);
  ++world_.moves;
}

void HistoryRules::CheckRecord(const Recovered& recovered) {
  if (reached_.count(recovered.step) == 0 || recovered.step > step_) {
    world_.Violate(absl::StrCat("a recovery goes on from step ", recovered.step,
                                ", the last barrier is ", step_));
  }
  if (world_.scenario.loses_nothing)
    world_.Violate("a recovery, where workers only come and leave in order");
  Resume(recovered.step);
  ++world_.recoveries;
}

void HistoryRules::Resume(int64_t step) {
  step_ = step;
  reached_.erase(reached_.upper_bound(step), reached_.end());
}

void HistoryRules::CheckRecord(const BarrierPassed& barrier) {
  if (barrier.step < step_ || (barrier.step == step_ && step_ != 0))
    world_.Record(absl::StrCat("barrier ", barrier.step, " once more"));
  if (barrier.step < step_)
    world_.Violate(absl::StrCat("barrier ", barrier.step, " after barrier ", step_));
  step_ = barrier.step;
  reached_.insert(step_);
  const std::vector<LayerHash>* const expected = oracle_.At(step_);
  if (expected == nullptr) return;
  const int64_t sequence = batching_.FirstSequence(step_).value();
  for (const StagePlan& stage : plan_.stages) {
    // The newest one that stands there; none: its worker is gone, and central does not know yet.
    const auto found =
        std::find_if(world_.engines.rbegin(), world_.engines.rend(), [&](HashEngine* engine) {
          return engine->first_layer() == stage.first_layer &&
                 engine->layers().size() ==
                     static_cast<size_t>(stage.last_layer - stage.first_layer + 1) &&
                 engine->reached() == sequence;
        });
    if (found == world_.engines.rend()) continue;
    if (!std::equal((*found)->layers().begin(), (*found)->layers().end(),
                    expected->begin() + stage.first_layer)) {
      world_.Violate(absl::StrCat("at barrier ", step_, " layers ", stage.first_layer, " to ",
                                  stage.last_layer,
                                  " have not been trained with each sample once"));
    }
  }
}

void HistoryRules::CheckRecord(const EvaluationRecorded& evaluation) {
  if (oracle_.At(evaluation.step) == nullptr) return;
  const double expected = oracle_.AccuracyAt(evaluation.step);
  if (std::abs(evaluation.accuracy - expected) < 1e-9) return;
  world_.Violate(absl::StrCat("the evaluation at step ", evaluation.step, " says ",
                              evaluation.accuracy, ", its weights give ", expected));
}

void HistoryRules::Check(const StateCollected& collected) {
  const std::vector<LayerHash>* const expected = oracle_.At(collected.step);
  if (expected == nullptr) return;
  for (size_t i = 0; i < collected.state.layers.size(); ++i) {
    LayerHash layer = HashOfState(collected.state.layers[i]);
    if (collected.use.weights_only()) layer.momentum = (*expected)[i].momentum;
    if (layer == (*expected)[i]) continue;
    return world_.Violate(absl::StrCat("the state that was collected at step ", collected.step,
                                       " is not that of its barrier in layer ", i));
  }
}

void HistoryRules::CheckSent(const CentralMessage& message, int64_t life) {
  if (std::exchange(life_, life) != life) replicated_.reset();
  if (const auto* commit = std::get_if<CommitPlan>(&message)) {
    const int32_t generation = commit->generation.value();
    committed_.emplace(generation, life);
    const auto first = committed_.lower_bound({generation, 0});
    if (first->second != life) {
      world_.Violate(absl::StrCat("generation ", generation, " has two leaders: life ",
                                  first->second, " and life ", life));
    }
  }
  if (const auto* commit = std::get_if<CommitReplicas>(&message)) {
    if (replicated_.has_value() && commit->id < *replicated_)
      world_.Violate("a commit of replicas goes back");
    if (!replicated_.has_value() || commit->id != *replicated_) ++world_.commits;
    replicated_ = commit->id;
  }
}

void HistoryRules::CheckBounds() {
  for (const HashEngine* engine : world_.engines) {
    if (engine->overfull()) world_.Violate("a stage keeps more micro-batches than its cap");
  }
  if (world_.control.most_kept() > kMostKept)
    world_.Violate(absl::StrCat("a control stream keeps more than ", kMostKept, " messages"));
}

}  // namespace runnel
