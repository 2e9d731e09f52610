// Who comes and goes while the run trains.

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/run/machines/coordinator.h"

namespace runnel {

void Coordinator::Enter(ConnectionId connection, const WorkerHello& hello) {
  // Central takes the stream that it knows for whole, but nobody is there any more.
  if (const std::optional<ConnectionId> old = roster_.StreamOf(hello); old.has_value()) {
    effects_.push_back(CloseControl{*old});
    Gone(*old, absl::UnavailableError("it has dialled again"));
    if (ended()) return;
  }
  const size_t before = roster_.devices().size();
  const std::optional<int> device = roster_.Enter(connection, hello, effects_);
  if (!device.has_value()) return;
  const bool is_new = static_cast<size_t>(*device) >= before;
  effects_.push_back(
      LogLine{Severity::kInfo,
              absl::StrCat("worker ", hello.name, is_new ? " has joined" : " takes part again",
                           ": the next barriers show whether a stage there pays")});
}

bool Coordinator::HasStage(int device) const {
  return active_.StageOf(device).has_value() || move_.Uses(device);
}

absl::Status Coordinator::BeginLeaving(int device) {
  if (roster_.device(device).leaving) return absl::OkStatus();
  if (roster_.has_local_seats() && roster_.IsLastLocal(device)) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", roster_.name(device),
                     " cannot leave: it is the last one on central's host, where stage 0 must be"));
  }
  roster_.SetLeaving(device, true);
  if (!HasStage(device)) {
    roster_.Release(device, effects_);
    return absl::OkStatus();
  }
  effects_.push_back(LogLine{
      Severity::kInfo, absl::StrCat("worker ", roster_.name(device),
                                    " leaves: its layers move to others at the next barrier")});
  if (std::exchange(stands_, false)) stands_ = !MoveFromLeaving();
  return absl::OkStatus();
}

void Coordinator::Handle(int device, const Leaving&) {
  const absl::Status status = BeginLeaving(device);
  if (status.ok()) return;
  effects_.push_back(
      LogLine{Severity::kWarning, absl::StrCat(status.message(), "; training goes on as it was")});
}

absl::Status Coordinator::Drain(const std::string& name) {
  for (size_t i = 0; i < roster_.devices().size(); ++i) {
    if (roster_.devices()[i].hello.name != name || roster_.lost()[i]) continue;
    if (!has_plan())
      return absl::FailedPreconditionError("training has not begun: end the worker instead");
    return BeginLeaving(static_cast<int>(i));
  }
  return absl::NotFoundError(absl::StrCat("no worker named ", name, " takes part"));
}

void Coordinator::Pause(bool paused) {
  paused_ = paused;
  if (!paused && std::exchange(stands_, false)) Train();
}

std::string Coordinator::StateOf(int device) const {
  const Device& one = roster_.device(device);
  if (roster_.lost()[static_cast<size_t>(device)]) return one.released ? "left" : "gone";
  if (one.leaving) return "leaves";
  const std::optional<size_t> stage = active_.StageOf(device);
  if (!stage.has_value()) return "waits";
  const StagePlan& plan = active_.plan.stages[*stage];
  return absl::StrCat("trains layers ", plan.first_layer, " to ", plan.last_layer);
}

MemberList Coordinator::Members() const {
  MemberList list{{}, step_, paused_};
  for (size_t i = 0; i < roster_.devices().size(); ++i) {
    const Device& device = roster_.devices()[i];
    list.members.push_back({device.hello.name, StateOf(static_cast<int>(i)),
                            device.hello.data_address, device.hello.numerics_class,
                            device.hello.memory_bytes, device.local});
  }
  return list;
}

std::vector<std::string> Coordinator::LeavingStages() const {
  std::vector<std::string> names;
  for (const StagePlan& stage : active_.plan.stages) {
    const Device& device = roster_.device(stage.device.value());
    if (device.leaving) names.push_back(device.hello.name);
  }
  return names;
}

bool Coordinator::MoveFromLeaving() {
  const std::vector<std::string> names = LeavingStages();
  if (names.empty()) return false;
  absl::StatusOr<Plan> plan = options_.planner->PlanForSurvivors(Report());
  if (plan.ok()) {
    ChangeTo({*std::move(plan),
              absl::StrCat("step ", step_, ": ", absl::StrJoin(names, ", "), " leaves")});
    return true;
  }
  effects_.push_back(LogLine{
      Severity::kWarning, absl::StrCat(absl::StrJoin(names, ", "), " cannot leave: ",
                                       plan.status().message(), "; training goes on as it was")});
  for (const StagePlan& stage : active_.plan.stages)
    roster_.SetLeaving(stage.device.value(), false);
  return false;
}

void Coordinator::ReleaseLeft() {
  for (size_t i = 0; i < roster_.devices().size(); ++i) {
    const Device& device = roster_.devices()[i];
    if (device.leaving && !device.released && !roster_.lost()[i] &&
        !active_.StageOf(static_cast<int>(i)).has_value())
      roster_.Release(static_cast<int>(i), effects_);
  }
}

}  // namespace runnel
