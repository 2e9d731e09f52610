// What is shown of a run.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/planning/live/period_parts.h"
#include "central/planning/rules/gate_counts.h"
#include "central/run/gate_figures.h"
#include "central/run/trainer_impl.h"
#include "central/run/waiting.h"

namespace runnel {

RunFacts Trainer::Impl::Facts() const {
  const RunSettings& settings = setup().settings;
  RunFacts facts{settings.model, settings.dataset, settings.schedule, settings.policy,
                 settings.recipe};
  for (const LayerSpec& layer : setup().model.layers) facts.layers.push_back(layer.name);
  facts.local_workers = std::max<int64_t>(settings.local_workers, 1);
  facts.dialling_workers = settings.workers;
  facts.join_commands = join_commands_;
  return facts;
}

RunPhase Trainer::Impl::Phase(const RunView& view, bool is_paused) const {
  if (end_.ended()) return RunPhase::kDone;
  return PhaseOf(*coordinator_, view.progress.is_evaluating() || job_.evaluate_only, is_paused);
}

// Who left in order is not missed.
std::vector<WorkerView> Trainer::Impl::Workers(const MemberList& list) const {
  const int64_t now_ns = parts_.clock->NowNanos();
  const std::vector<Device>& devices = coordinator_->devices();
  std::vector<WorkerView> workers;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].released) continue;
    WorkerView worker{list.members[i]};
    if (const auto heard = heard_ns_.find(devices[i].connection); heard != heard_ns_.end())
      worker.heard_s_ago = static_cast<double>(now_ns - heard->second) * 1e-9;
    workers.push_back(std::move(worker));
  }
  return workers;
}

RunView Trainer::Impl::View() {
  RunView view = record_->View(coordinator_->plan(), Stages(), coordinator_->step());
  view.period = job_.planner->period();
  // The settings were checked when the run was set up.
  ShowLevelBits(LinkLevels::Of(setup().settings.recipe, setup().training, setup().model).value(),
                coordinator_->ChangesAt(coordinator_->step()), view);
  if (const int64_t trained = coordinator_->step() - job_.first_step; trained > 0) {
    const double each = 1 / static_cast<double>(trained * setup().training.micro_batches);
    AddEvaluations(static_cast<double>(record_->clock().evaluated_ns()) * 1e-9 * each,
                   coordinator_->seconds_lost_to_evaluations() * each, view.period.parts);
  }
  view.replication = coordinator_->replication();
  if (const Feeder* feeder = feed_.feeder(); feeder != nullptr) {
    view.progress.evaluated = feeder->evaluated();
    view.progress.to_evaluate = feeder->evaluation_micro_batches();
  }
  const RuleStates rules = coordinator_->RuleStatesAt(coordinator_->step());
  if (const auto gates = rules.find(std::string(GateCounts::kName)); gates != rules.end()) {
    view.gates = GateChoicesOf(setup().model, gates->second).value_or(view.gates);
    view.gate_targets = GateTargetsOf(setup().training, gates->second).value_or(view.gate_targets);
  }
  MemberList members = coordinator_->Members();
  relays_.Mark(members);
  view.workers = Workers(members);
  view.phase = Phase(view, members.paused);
  if (waiting_.done < waiting_.total && view.phase != RunPhase::kDone) {
    view.doing = waiting_.what;
    view.done_share = static_cast<double>(waiting_.done) / static_cast<double>(waiting_.total);
  }
  return view;
}

void Trainer::Impl::ShowPlan(const PlanDecided& decided, const std::string& links,
                             const std::string& why) {
  PlanShown shown{decided.plan.generation.value(), decided.from_step, why, links, {}};
  for (const auto [i, number] : decided.plan.seats()) {
    const StagePlan& stage = decided.plan.stages[i];
    shown.stages.push_back(
        {decided.devices[static_cast<size_t>(number)].name, stage.first_layer, stage.last_layer});
  }
  const std::string stages =
      absl::StrJoin(shown.stages, ", ", [](std::string* out, const PlanShown::Stage& stage) {
        absl::StrAppend(out, stage.device, " has layers ", stage.first_layer, " to ",
                        stage.last_layer);
      });
  parts_.display->AddEvent({EventKind::kPlan, decided.from_step,
                            absl::StrCat("plan ", shown.generation, ": ", stages), why});
  parts_.display->AddPlan(std::move(shown));
}

}  // namespace runnel
