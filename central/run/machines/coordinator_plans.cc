// The coordinator's part that brings plans into force: the measurements before, and the outcome of
// a Move.

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/run/machines/coordinator.h"

namespace runnel {

void Coordinator::Begin() {
  if (!options_.needs_profile) return MakeFirstPlan();
  MeasureDevices all;
  const std::vector<DeviceFacts> facts = Facts();
  for (size_t i = 0; i < facts.size(); ++i) {
    const auto device = static_cast<int>(i);
    if (!facts[i].is_local && options_.planner->ProbesPath(facts, device))
      all.paths.push_back(device);
  }
  all.devices.resize(options_.profiles_first_only ? 1 : roster_.devices().size());
  std::iota(all.devices.begin(), all.devices.end(), 0);
  measuring_.Order(all, step());
  Measure();
}

void Coordinator::Gather(int64_t now_ns) {
  if (ended()) return;
  if (!roster_.complete() && gathering_.Begins(roster_, now_ns)) {
    roster_.Complete(effects_);
    return Begin();
  }
  if (absl::Status in_time = gathering_.CheckPatience(roster_, now_ns); !in_time.ok())
    End(std::move(in_time), false);
}

void Coordinator::MeasureNewcomer(int device) {
  if (move_.under_way()) return;  // it is new to the planner at the first barrier
  if (!options_.needs_profile) {
    if (gathering_.waits()) PlanAgain();
    return;
  }
  MeasureDevices what;
  if (device == 0 || !options_.profiles_first_only) what.devices.push_back(device);
  const std::vector<DeviceFacts> facts = Facts();
  if (!roster_.device(device).local && options_.planner->ProbesPath(facts, device))
    what.paths.push_back(device);
  measuring_.Order(what, step());
  Measure();
}

void Coordinator::Measure() {
  const bool stands = stands_to_measure();
  if (has_plan() && stands && course_.is_to_stop()) {  // asked for while a device measured
    measuring_.Cancel();
    return CollectFinal();
  }
  if (!measuring_.GoOn(active_, states_under_way(), roster_, effects_)) return;
  if (!has_plan() || gathering_.waits()) return PlanAgain();
  if (!stands) return;
  course_.GoOn();
  AskPlanner();
}

void Coordinator::Handle(int device, const WayMeasured& measured) {
  if (measuring_.Add(device, measured, roster_, effects_)) Measure();
}

void Coordinator::Handle(int device, const ProbePiece& piece) {
  if (measuring_.Add(device, piece, roster_, effects_)) Measure();
}

void Coordinator::Handle(int device, const ProfileReport& report) {
  const absl::StatusOr<bool> done = measuring_.Add(device, report, roster_, effects_);
  if (!done.ok()) return End(done.status(), false);
  if (*done) Measure();
}

void Coordinator::Handle(int device, const ProfileFailed& failed) {
  const absl::StatusOr<bool> done = measuring_.Add(device, failed, roster_, effects_);
  if (!done.ok()) return End(done.status(), false);
  if (*done) Measure();
}

void Coordinator::Handle(int device, const ProgramReport& report) {
  ProgramReport known = report;
  // A plan that nobody asked to be listed does not fail for its listing.
  if (!options_.lists_programs) known.failure.clear();
  const absl::StatusOr<bool> complete = program_lists_.Add(device, known, roster_);
  if (!complete.ok()) return End(complete.status(), false);
  if (*complete) End(absl::OkStatus(), false);
}

PrepareStage Coordinator::StageMessage() const {
  PrepareStage message = options_.stage;
  message.first_sequence = barrier_.reached_sequence();
  message.changes = options_.changes;
  return message;
}

void Coordinator::PlanAgain() {
  if (!recovery_.waiting()) recovery_.replacing() ? PlanRecovery() : MakeFirstPlan();
}

void Coordinator::MakeFirstPlan() {
  if (!roster_.has_least()) return gathering_.Wait(absl::OkStatus(), roster_, effects_);
  absl::StatusOr<Plan> plan = options_.planner->FirstPlan(Facts(), Times());
  if (!plan.ok() && roster_.has_free_seat())
    return gathering_.Wait(plan.status(), roster_, effects_);
  gathering_.StopWaiting();
  if (!plan.ok()) return End(plan.status(), false);
  if (std::optional<LinksKnown> links = options_.planner->KnownLinks(); links.has_value())
    effects_.push_back(Persist{*std::move(links)});
  MoveOrder order;
  order.decided = DecidedOn(roster_, step(), *std::move(plan), Times());
  if (options_.plan_only) {
    order.decided.plan.generation = options_.first_generation;
    active_.plan = order.decided.plan;
    effects_.push_back(Persist{std::move(order.decided)});
    const auto on_several = [this](int device) {
      return BackendFamilies(roster_.BackendOf(device)).size() > 1;
    };
    const std::vector<int> devices = active_.plan.devices();
    if (!options_.lists_programs && std::none_of(devices.begin(), devices.end(), on_several))
      return End(absl::OkStatus(), false);
    return program_lists_.Begin(active_.plan, options_.measurement.request, options_.stage.training,
                                roster_, effects_);
  }
  order.common = StageMessage();
  order.common.draws_state = recovery_.state().layers.empty();
  order.state = recovery_.state();
  const absl::Status begun = move_.Begin(std::move(order), active_, roster_, effects_);
  if (!begun.ok()) End(begun, false);
}

void Coordinator::ChangeTo(ChangePlan change) {
  const bool same =
      change.plan.stages == active_.plan.stages && change.plan.links == active_.plan.links;
  if (same) return GoOnFromMove();
  MoveOrder order;
  order.decided = DecidedOn(roster_, step(), std::move(change.plan),
                            change.times.empty() ? Times() : change.times);
  order.why = std::move(change.why);
  order.common = StageMessage();
  const absl::Status begun = move_.Begin(std::move(order), active_, roster_, effects_);
  if (begun.ok()) return;
  effects_.push_back(
      LogLine{Severity::kWarning, absl::StrCat("the new plan is no plan: ", begun.message())});
  GoOnFromMove();
}

void Coordinator::GoOnFromMove() {
  if (course_.Stands(StandsFor::kLeaving)) return CollectAtBarrier();
  Train();
}

void Coordinator::Handle(int device, const LayersFetched& fetched) {
  move_.AddLayers(device, fetched, roster_, effects_);
}

void Coordinator::Handle(int device, const StagePrepared& prepared) {
  std::optional<ActivePlan> next = move_.AddPrepared(device, prepared, roster_, effects_);
  if (!next.has_value()) return;
  active_ = *std::move(next);
  // Integer recipes give the same bytes on all classes.
  roster_.SetClasses(move_.decided(), options_.format.is_exact(), effects_);
  roster_.ReleaseLeft(active_.plan, effects_);
  replication_.GiveUp();
  if (recovery_.replacing()) recovery_.Prepared(effects_);
}

void Coordinator::Handle(int device, const StageReady& ready) {
  if (!move_.AddReady(device, ready)) return;
  // A resumed run that has nothing left to train is evaluated and collected all the same.
  if (barrier_.IsLast(step())) return ArriveAtBarrier(step());
  CollectAgain();
  // Who has begun to leave during the move is next. After a move that failed it is not asked again.
  if (!course_.Stands(StandsFor::kLeaving)) {
    Train();
    return MoveFromLeavingInPause();
  }
  course_.Stand(StandsFor::kStates);
  CollectAtBarrier();
}

void Coordinator::Handle(int device, const StageFailed& failed) {
  if (!has_plan() || recovery_.waiting() || recovery_.replacing()) {
    // A survivor's message about its old stage is no news.
    if (!move_.under_way() || failed.generation != move_.generation()) return;
    if (SurvivesLossOf(failed)) return Recover(device, failed.reason, failed.lost_backend);
    if (recovery_.replacing() || !failed.unfit) return ChooseAgain(device, failed);
    return EndFor(device, failed);
  }
  if (move_.revocable() && failed.generation == move_.generation()) {
    move_.Abort(absl::StrCat("worker ", roster_.name(device), ": ", failed.reason), roster_,
                effects_);
    return GoOnFromMove();
  }
  if (failed.generation != active_.plan.generation) return;
  if (SurvivesLossOf(failed)) return Recover(device, failed.reason, failed.lost_backend);
  if (failed.not_finite != NotFinite::kNothing) return RecoverFromNotFinite(device, failed);
  if (recovery_.beginning()) return ChooseAgain(device, failed);
  if (move_.revocable()) move_.Abort(failed.reason, roster_, effects_);
  EndFor(device, failed);
}

}  // namespace runnel
