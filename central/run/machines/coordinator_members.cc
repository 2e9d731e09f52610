// The coordinator's part for workers that join and leave while the run trains.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/run/machines/coordinator.h"

namespace runnel {

std::vector<DeviceFacts> Coordinator::Facts() const {
  std::vector<DeviceFacts> facts = FactsOf(roster_, measuring_.links().paths());
  for (size_t i = 0; i < facts.size(); ++i)
    facts[i].is_dialable = detector_.IsDialable(roster_.devices()[i].connection);
  return facts;
}

void Coordinator::SetRelayed(const std::vector<StageStatus>& marked) {
  for (size_t i = 0; i < std::min(marked.size(), active_.stages.size()); ++i)
    active_.stages[i].relayed = marked[i].relayed;
}

void Coordinator::Enter(ConnectionId connection, const WorkerHello& hello) {
  // Central takes the stream that it knows for whole, but nobody is there any more.
  if (const std::optional<ConnectionId> old = roster_.StreamOf(hello); old.has_value()) {
    effects_.push_back(CloseControl{*old});
    Gone(*old, absl::UnavailableError("it has dialled again"));
    if (ended()) return;
  }
  const size_t before = roster_.devices().size();
  const bool is_known =
      std::any_of(roster_.devices().begin(), roster_.devices().end(),
                  [&hello](const Device& known) { return known.hello.name == hello.name; });
  const auto has_stage = [this](int number) {
    return active_.plan.Uses(number) || move_.Uses(number);
  };
  const std::optional<int> device = roster_.Enter(connection, hello, has_stage, effects_);
  if (!device.has_value()) return;
  const bool is_new = static_cast<size_t>(*device) >= before || !is_known;
  if (!is_known) measuring_.ForgetPath(*device);  // the number may have been another one's
  if (!has_plan() || gathering_.waits()) return MeasureNewcomer(*device);
  effects_.push_back(
      LogLine{Severity::kInfo,
              absl::StrCat("worker ", hello.name, is_new ? " has joined" : " takes part again",
                           ": the next barriers show whether a stage there pays")});
}

absl::Status Coordinator::BeginLeaving(int device, const std::string& reason) {
  const bool has_stage = active_.plan.Uses(device) || move_.Uses(device);
  const bool is_new = !roster_.device(device).leaving;
  if (absl::Status begun = roster_.BeginLeaving(device, has_stage, reason, effects_); !begun.ok())
    return begun;
  if (!is_new || !has_stage) return absl::OkStatus();
  MoveFromLeavingMeanwhile();
  MoveFromLeavingInPause();
  return absl::OkStatus();
}

void Coordinator::Handle(int device, const Leaving& leaving) {
  const absl::Status status = BeginLeaving(device, leaving.reason);
  if (status.ok()) return;
  effects_.push_back(
      LogLine{Severity::kWarning, absl::StrCat(status.message(), "; training goes on as it was")});
}

absl::Status Coordinator::Drain(const std::string& name) {
  for (size_t i = 0; i < roster_.devices().size(); ++i) {
    if (roster_.devices()[i].hello.name != name || roster_.lost()[i]) continue;
    if (!has_plan())
      return absl::FailedPreconditionError("training has not begun: end the worker instead");
    return BeginLeaving(static_cast<int>(i), "");
  }
  return absl::NotFoundError(absl::StrCat("no worker named ", name, " takes part"));
}

void Coordinator::Pause(bool paused) {
  course_.OrderPause(paused);
  if (paused || !course_.Stands(StandsFor::kOperator)) return;
  course_.GoOn();
  Train();
}

absl::Status Coordinator::Replan() {
  if (!has_plan()) return absl::FailedPreconditionError("no plan holds yet");
  return options_.planner->OrderReplan();
}

// Only where plans change anyway, so that a journal has its plans at the barriers of the run.
void Coordinator::MoveFromLeavingMeanwhile() {
  if (!course_.Stands(StandsFor::kStates) || !IsRegularBarrier()) return;
  course_.Stand(StandsFor::kLeaving);
  if (!MoveFromLeaving()) course_.Stand(StandsFor::kStates);
}

void Coordinator::MoveFromLeavingInPause() {
  if (!course_.Stands(StandsFor::kOperator)) return;
  course_.GoOn();
  if (!MoveFromLeaving()) course_.Stand(StandsFor::kOperator);
}

bool Coordinator::MoveFromLeaving() {
  const std::vector<std::string> names = roster_.LeavingStages(active_.plan);
  if (names.empty()) return false;
  absl::StatusOr<Plan> plan = options_.planner->PlanForSurvivors(Report());
  if (plan.ok()) {
    ChangeTo({*std::move(plan),
              absl::StrCat("step ", step(), ": ", absl::StrJoin(names, ", "), " leaves")});
    return true;
  }
  effects_.push_back(LogLine{
      Severity::kWarning, absl::StrCat(absl::StrJoin(names, ", "), " cannot leave: ",
                                       plan.status().message(), "; training goes on as it was")});
  for (const int device : active_.plan.devices()) roster_.SetLeaving(device, false);
  return false;
}

}  // namespace runnel
