// The coordinator's part that goes back after the loss of workers.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/run/machines/coordinator.h"

namespace runnel {

void Coordinator::Recover(int device, absl::string_view why, const std::string& lost_backend) {
  Recover(LostStage{.device = device, .why = std::string(why), .backend = lost_backend});
}

void Coordinator::RecoverWithout(int device, absl::string_view why) {
  roster_.Bar(device);
  // What else it has may be no better.
  replication_.Lose(device);
  Recover(LostStage{.device = device, .why = std::string(why), .failed = true});
}

void Coordinator::Recover(LostStage lost) {
  const int64_t trained = active_.stages.empty() ? 0 : active_.stages.front().telemetry.backwards;
  lost.step = step();
  lost.reached = std::max(Sequence(trained), barrier_.reached_sequence());
  const absl::Status begun = recovery_.Lose(lost, Replicas(), roster_, effects_);
  if (!begun.ok()) return End(begun, false);
  barrier_.CountLoss();
  GoBack();
  if (!recovery_.waiting()) return PlanRecovery();
  gathering_.StopWaiting();
}

void Coordinator::ChooseAgain(int device, const StageFailed& failed) {
  if (recovery_.replacing() && recovery_.DropReplicas()) {
    effects_.push_back(
        LogLine{Severity::kWarning,
                absl::StrCat("worker ", roster_.name(device), ": ", failed.reason,
                             ": the run goes on from the last state that central has instead")});
    replication_.Forget();
    GoBack();
    return PlanRecovery();
  }
  if (!options_.recovers || (roster_.has_local_seats() && roster_.IsLastLocal(device)))
    return EndFor(device, failed);
  RecoverWithout(device, failed.reason);
}

// The worker that made the value is not asked again; where it must be (stage 0), or where training
// diverges on any worker, the value comes again at the same place, and that is the end.
void Coordinator::RecoverFromNotFinite(int device, const StageFailed& failed) {
  if (!recovery_.SurvivesNotFinite(step())) return EndFor(device, failed);
  auto stage = static_cast<int>(active_.plan.StageOf(device).value_or(0));
  if (failed.not_finite == NotFinite::kUpstream) --stage;
  if (failed.not_finite == NotFinite::kDownstream) ++stage;
  stage = std::clamp(stage, 0, static_cast<int>(active_.plan.stages.size()) - 1);
  RecoverWithout(active_.plan.stages[static_cast<size_t>(stage)].sole_device(), failed.reason);
}

// Integer recipes give the same bytes on all backends. With other recipes the weights would mix
// two numerics classes, and no replay could repeat the run.
bool Coordinator::SurvivesLossOf(const StageFailed& failed) const {
  return !failed.lost_backend.empty() && options_.format.is_exact();
}

// Restarting after a pending evaluation's barrier would lose that evaluation, so replicas from
// later barriers are not used.
std::optional<ReplicatedBarrier> Coordinator::Replicas() const {
  const std::optional<ReplicatedBarrier>& committed = replication_.committed();
  if (committed.has_value() && states_.collection().EvaluatesBefore(committed->step))
    return std::nullopt;
  return committed;
}

void Coordinator::GoBack() {
  if (move_.under_way()) move_.GiveUp(roster_, effects_);
  if (stands_to_measure()) measuring_.Cancel();
  const int64_t to = recovery_.step();
  states_.GoBack(step(), to);
  replication_.GoBackTo(to);
  barrier_.GoBackTo(to);
  DropChangesAfter(to, options_.changes);
  if (options_.rules != nullptr) options_.rules->GoBackTo(to);
  options_.early_stop.GoBackTo(to);
  dry_runs_.GoBackTo(to);
  course_.GoBack();
}

void Coordinator::PlanRecovery() {
  absl::StatusOr<Plan> plan = options_.planner->PlanForSurvivors(Report());
  if (!plan.ok()) return AwaitWorkers(recovery_.NoPlan(plan.status()));
  gathering_.StopWaiting();
  MoveOrder order = recovery_.Order(DecidedOn(roster_, step(), *std::move(plan), Times()),
                                    StageMessage(), effects_);
  const absl::Status begun = move_.Begin(std::move(order), ActivePlan(), roster_, effects_);
  if (!begun.ok()) End(recovery_.NoPlan(begun), false);
}

void Coordinator::AwaitWorkers(const absl::Status& why) {
  if (const std::optional<int> lost = roster_.LostLocal(); lost.has_value()) {
    effects_.push_back(LogLine{Severity::kWarning, std::string(why.message())});
    if (absl::Status begun = recovery_.Await(roster_.name(*lost), effects_); !begun.ok())
      End(begun, false);
    return;
  }
  if (!roster_.takes_diallers()) return End(why, false);
  gathering_.Wait(why, roster_, effects_);
}

void Coordinator::CollectAgain() {
  const StateUse use = states_.collection().TakeMissing();
  if (!use.any()) return;
  states_.Request(step(), use, active_, effects_);
  if (use.recovery || use.checkpoint) recovery_.BeginCollecting(barrier_.reached_ns());
}

void Coordinator::Handle(int device, const Replicated& replicated) {
  const std::optional<size_t> stage = active_.plan.StageOf(device);
  if (stage.has_value()) replication_.AddReplicated(*stage, replicated, roster_, effects_);
  if (measuring_.waits()) Measure();
}

}  // namespace runnel
