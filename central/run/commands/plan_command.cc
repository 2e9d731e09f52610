// `plan`: the plan that a run would have, without training.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/run/commands/run_job.h"
#include "central/run/own_model.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Prints the seconds of each stage for a micro-batch, where its device was measured.
void PrintStageSeconds(const TrainingOutcome& outcome, const RunSettings& settings,
                       const CommandContext& context) {
  const PlanDecided& decided = outcome.plans.back();
  const std::string source =
      settings.predictor.empty() ? "measured" : absl::StrCat("predicted by ", settings.predictor);
  for (const auto [i, number] : decided.plan.seats()) {
    const StagePlan& stage = decided.plan.stages[i];
    const JournalDevice& device = decided.devices[static_cast<size_t>(number)];
    if (device.times.empty()) continue;
    const double seconds = device.times.Seconds({stage.first_layer, stage.last_layer});
    context.print(absl::StrFormat("%s: layers %d to %d, %.3f ms a micro-batch (%s)", device.name,
                                  stage.first_layer, stage.last_layer, seconds * 1e3, source));
  }
}

// The devices with the times of their layers.
void PrintDevices(const TrainingOutcome& outcome, const CommandContext& context) {
  for (const JournalDevice& device : outcome.plans.back().devices) {
    std::string line = absl::StrCat(device.name, " (", device.numerics_class, ")");
    const std::vector<double> layers = device.times.LayerSeconds();
    if (!layers.empty()) absl::StrAppend(&line, ": layer milliseconds");
    for (double seconds : layers) absl::StrAppendFormat(&line, " %.3f", seconds * 1e3);
    context.print(line);
  }
}

// The order of the stages' first micro-batches.
std::string ScheduleText(const TrainingOutcome& outcome, const RunSetup& setup) {
  std::vector<StageOrder> stages;
  for (const StagePlan& stage : outcome.plan.stages) stages.push_back(stage.order());
  const int64_t drain = setup.schedule->drains_each_step ? setup.training.micro_batches : 0;
  constexpr int64_t kShownMicroBatches = 8;
  const auto forward_only = std::count_if(
      outcome.plan.stages.begin(), outcome.plan.stages.end(),
      [&](const StagePlan& stage) { return stage.last_layer < setup.model.frozen_front(); });
  return PrintSchedule(stages, kShownMicroBatches, drain, setup.training.micro_batches,
                       static_cast<size_t>(forward_only));
}

// The stages' programs; in_full: all instructions, else those of several processors in short.
void PrintPrograms(const TrainingOutcome& outcome, bool in_full, const CommandContext& context) {
  for (size_t i = 0; i < outcome.programs.size(); ++i) {
    const std::string& name =
        OfSoleDevice(outcome.plan.stages[i], outcome.plans.back().devices).name;
    const ProgramListing& program = outcome.programs[i];
    if (in_full) {
      context.print(absl::StrCat(name, ": ", ToText(program)));
    } else if (program.processors.size() > 1) {
      context.print(absl::StrCat(name, ": ", SummaryOf(program)));
    }
  }
}

}  // namespace

absl::Status PlanCommand(const RunSettings& settings, const std::vector<std::string>& what_if,
                         bool lists_programs, const CommandContext& context) {
  RUNNEL_RETURN_IF_ERROR(CheckSummary(settings.summary));
  RUNNEL_ASSIGN_OR_RETURN(RunSetup setup, SetUpRun(settings));
  if (setup.plain_loop)
    return absl::InvalidArgumentError("--local-workers 0: the plain loop has no plan");
  // A plan does not depend on how many samples there are: nothing is loaded.
  RUNNEL_RETURN_IF_ERROR(SetTrainingSamples(setup.settings.training.batch_size, setup));
  TrainingJob job;
  job.setup = &setup;
  job.stop_step = setup.stop_step;
  job.plan_only = true;
  job.lists_programs = lists_programs;
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<RunPlanner> planner,
                          MakePolicyPlanner(job, context));
  job.planner = planner.get();
  RUNNEL_ASSIGN_OR_RETURN(const TrainingOutcome outcome,
                          RunTrainingJob(std::move(job), nullptr, context));
  PrintDevices(outcome, context);
  PrintStageSeconds(outcome, settings, context);
  context.print(ScheduleText(outcome, setup));
  PrintPrograms(outcome, lists_programs, context);
  for (const std::string& text : what_if) {
    RUNNEL_ASSIGN_OR_RETURN(const Planner::LateAnswer answer,
                            planner->WhatIf(text, outcome.plans.back()));
    RUNNEL_ASSIGN_OR_RETURN(const std::string line, answer());
    context.print(line);
  }
  if (!settings.summary.empty())
    RUNNEL_RETURN_IF_ERROR(AsFailedRun(WriteSummary(outcome.summary, settings.summary)));
  return absl::OkStatus();
}

}  // namespace runnel
