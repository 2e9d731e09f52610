// `resume`: a run goes on from its newest check-point.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/fixed_planner.h"
#include "central/run/commands/run_job.h"
#include "central/run/machines/measuring/dry_runs.h"
#include "central/run/own_model.h"
#include "central/run/rule_checks.h"
#include "central/run/trained_weights.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// The run's settings with the user's changes.
RunSettings SettingsToResume(RunSettings settings, const ResumeArguments& arguments) {
  const auto set = [](const auto& given, auto& value) {
    if (given.has_value()) value = *given;
  };
  settings.checkpoint_dir = arguments.checkpoint_dir;
  settings.summary = arguments.summary.value_or("");
  settings.report = arguments.report;
  set(arguments.local_workers, settings.local_workers);
  set(arguments.workers, settings.workers);
  if (settings.at_least.has_value())
    settings.at_least = std::min(*settings.at_least, settings.workers);
  set(arguments.epochs, settings.epochs);
  if (arguments.epochs.has_value()) settings.max_batches = 0;
  set(arguments.max_batches, settings.max_batches);
  set(arguments.data_dir, settings.data_dir);
  set(arguments.journal, settings.journal);
  set(arguments.listen, settings.listen);
  if (arguments.metrics_port.has_value()) settings.metrics_port = arguments.metrics_port;
  if (settings.metrics_port == -1) settings.metrics_port.reset();
  return settings;
}

// That the run which is set up is that of the check-point, up to its end.
absl::Status CheckGoesOn(const RunSetup& setup, const Checkpoint& checkpoint,
                         const ResumeArguments& arguments) {
  const std::string where = absl::StrCat("--checkpoint-dir ", arguments.checkpoint_dir);
  RUNNEL_RETURN_IF_ERROR(CheckModel(ModelSha256(checkpoint.model), setup, where));
  TrainingSettings before = checkpoint.training;
  if (arguments.epochs.has_value()) before.run_steps = setup.training.run_steps;
  if (!(setup.training == before)) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": its data set or training settings are not those of the run any more"));
  }
  if (!arguments.epochs.has_value() || setup.total_steps > checkpoint.step) return absl::OkStatus();
  const int64_t steps = setup.total_steps / setup.settings.epochs;
  return absl::InvalidArgumentError(absl::StrCat("--epochs ", *arguments.epochs,
                                                 ": the run has trained ", checkpoint.step / steps,
                                                 " epochs; give how many it shall have in all"));
}

// Whether an evaluation that the check-point knows of has ended the run. InvalidArgument: it has, and
// is asked to train on.
absl::StatusOr<bool> WasEnded(const EarlyStop& early_stop, const ResumeArguments& arguments) {
  if (!early_stop.is_due() || !arguments.epochs.has_value()) return early_stop.is_due();
  return absl::InvalidArgumentError(
      absl::StrCat("--epochs ", *arguments.epochs,
                   ": --early-stop has ended the run; train --init-from begins another one with "
                   "its best weights"));
}

// What is no training rule, but is kept with their states.
absl::Status RestoreRules(const std::map<std::string, std::string>& states, TrainingJob& job) {
  if (const auto seen = states.find(std::string(EarlyStop::kName)); seen != states.end())
    RUNNEL_RETURN_IF_ERROR(job.early_stop.Restore(seen->second));
  if (const auto noise = states.find(std::string(DryRuns::kName)); noise != states.end()) {
    RUNNEL_RETURN_IF_ERROR(DryRuns::CheckState(noise->second));
    job.dry_runs_state = noise->second;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ResumeCommand(const ResumeArguments& arguments, const CommandContext& context) {
  RUNNEL_RETURN_IF_ERROR(CheckSummary(arguments.summary.value_or("")));
  RUNNEL_RETURN_IF_ERROR(CheckReport(arguments.report));
  RUNNEL_RETURN_IF_ERROR(LatestCheckpoint(arguments.checkpoint_dir).status());
  RUNNEL_ASSIGN_OR_RETURN(const RunClaim claim, RunClaim::Continue(arguments.checkpoint_dir));
  RUNNEL_ASSIGN_OR_RETURN(ReadableCheckpoint newest,
                          NewestCheckpoint(arguments.checkpoint_dir, context.logger));
  Checkpoint& checkpoint = newest.checkpoint;
  RunSettings settings = SettingsToResume(checkpoint.settings, arguments);
  const bool same_stages = settings.local_workers == checkpoint.settings.local_workers &&
                           settings.workers == checkpoint.settings.workers;
  if (!same_stages) settings.caps.clear();
  RUNNEL_ASSIGN_OR_RETURN(const LoadedRun run, SetUpAndLoad(settings, context.logger));
  const RunSetup& setup = run.setup;
  RUNNEL_RETURN_IF_ERROR(CheckGoesOn(setup, checkpoint, arguments));
  TrainingJob job;
  job.setup = &setup;
  job.data = &run.data;
  job.claim = &claim;
  job.first_step = checkpoint.step;
  job.stop_step = std::max(setup.stop_step, checkpoint.step);
  job.state = std::move(checkpoint.state);
  job.generation = FirstGeneration(claim.life(), checkpoint.plan.generation);
  job.changes = std::move(checkpoint.changes);
  // The same devices go on with the same plan: only then is the result that of a run that never
  // stopped.
  std::unique_ptr<Planner> planner = std::make_unique<FixedPlanner>(
      checkpoint.plan, FixedPlanner::OnLoss::kMerge, checkpoint.device_names);
  if (!same_stages) {
    RUNNEL_ASSIGN_OR_RETURN(planner, MakePolicyPlanner(job, context));
  }
  job.planner = planner.get();
  RUNNEL_ASSIGN_OR_RETURN(TrainingRules rules,
                          MakeTrainingRules(setup, job.first_step, job.changes, checkpoint.rules));
  job.rules = &rules;
  job.early_stop = EarlyStopOf(setup);
  RUNNEL_RETURN_IF_ERROR(RestoreRules(checkpoint.rules, job));
  RUNNEL_ASSIGN_OR_RETURN(const bool was_ended, WasEnded(job.early_stop, arguments));
  if (was_ended) job.stop_step = checkpoint.step;
  const auto logs = TrainingLog::Files(settings.log, settings.tensorboard);
  if (!logs.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(job.log, TrainingLog::Continue(logs, checkpoint.step));
  }
  std::optional<JournalWriter> journal;
  if (!settings.journal.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(journal, JournalWriter::Continue(settings.journal));
    RUNNEL_RETURN_IF_ERROR(
        journal->Append(RunResumed{checkpoint.step, newest.path, setup.settings.epochs}));
  }
  context.print(absl::StrCat("resuming ", setup.model.name, " at step ", checkpoint.step, " from ",
                             newest.path));
  return RunToTheEnd(std::move(job), journal.has_value() ? &*journal : nullptr, context);
}

}  // namespace runnel
