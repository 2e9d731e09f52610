// What the loss of workers takes back, and from where training goes on.

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/run/machines/coordinator.h"

namespace runnel {

void Coordinator::Recover(int device, const absl::Status& why) {
  const int64_t trained = active_.stages.empty() ? 0 : active_.stages.front().telemetry.backwards;
  const LostStage lost{device, std::string(why.message()), step_,
                       std::max(Sequence(trained), batching_.FirstSequence(step_))};
  const absl::Status begun = recovery_.Lose(lost, Replicas(), roster_, effects_);
  if (!begun.ok()) return End(begun, false);
  GoBack();
  if (!recovery_.waiting()) PlanRecovery();
}

// From a later barrier than that of an evaluation whose state is still on its way it would be
// missing.
std::optional<ReplicatedBarrier> Coordinator::Replicas() const {
  const std::optional<ReplicatedBarrier>& committed = replication_.committed();
  if (committed.has_value() && collection_.EvaluatesBefore(committed->step)) return std::nullopt;
  return committed;
}

void Coordinator::GoBack() {
  if (move_.under_way()) move_.GiveUp(roster_, effects_);
  link_probe_.Cancel();
  measurement_.Cancel();
  measures_next_.reset();
  const int64_t from = std::exchange(step_, recovery_.step());
  const StateUse missing = collection_.UseAt(step_);
  // After a further loss from the same barrier nobody has asked for it again yet.
  if (missing.any() || from != step_) collects_again_ = missing;
  collection_.GiveUp();
  replication_.GoBackTo(step_);
  barrier_.GoBackTo(step_);
  pace_.GoBackTo(step_);
  std::erase_if(evaluations_, [this](const auto& entry) { return entry.first > step_; });
  DropChangesAfter(step_, options_.changes);
  if (options_.training_rule != nullptr) options_.training_rule->GoBackTo(step_);
  granted_next_.reset();
  collects_next_ = false;
  stands_ = false;
  ending_ = Ending::kNotYet;
}

void Coordinator::PlanRecovery() {
  absl::StatusOr<Plan> plan = options_.planner->PlanForSurvivors(Report());
  if (!plan.ok()) return End(recovery_.NoPlan(plan.status()), false);
  MoveOrder order =
      recovery_.Order(Decided(*std::move(plan), measurement_.times()), StageMessage(), effects_);
  const absl::Status begun = move_.Begin(std::move(order), ActivePlan(), roster_, effects_);
  if (!begun.ok()) End(recovery_.NoPlan(begun), false);
}

void Coordinator::CollectAgain() {
  StateUse use = std::exchange(collects_again_, {});
  use.final = false;
  if (!use.any()) return;
  if (use.evaluation) evaluations_[step_] = active_.plan.generation;
  collection_.Request(step_, use, active_, effects_);
  if (use.recovery || use.checkpoint) recovery_.BeginCollecting(now_ns_);
}

void Coordinator::Handle(int device, const Replicated& replicated) {
  const std::optional<size_t> stage = active_.StageOf(device);
  if (stage.has_value()) replication_.AddReplicated(*stage, replicated, roster_, effects_);
  if (measures_next_.has_value() && !states_under_way()) MeasureNext();
}

}  // namespace runnel
