// `train`: a new run.

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/run/commands/run_job.h"
#include "central/run/own_model.h"
#include "central/run/rule_checks.h"
#include "central/run/trained_weights.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {
namespace {

// A new run must not mix its check-points with those of another: `resume` could not tell them
// apart.
absl::Status CheckFolderIsFree(const std::string& directory) {
  std::error_code ignored;
  const bool used =
      !directory.empty() &&
      (LatestCheckpoint(directory).ok() ||
       std::filesystem::exists(std::filesystem::path(directory) / "final.runnel", ignored) ||
       std::filesystem::exists(std::filesystem::path(directory) / "best.runnel", ignored));
  if (!used) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--checkpoint-dir ", directory,
      ": holds check-points of a run already; resume that one, or give another folder"));
}

}  // namespace

absl::Status TrainCommand(const RunSettings& settings, const CommandContext& context,
                          RunSummary* result) {
  RUNNEL_RETURN_IF_ERROR(CheckSummary(settings.summary));
  RUNNEL_RETURN_IF_ERROR(CheckReport(settings.report));
  if (!settings.log.empty()) RUNNEL_RETURN_IF_ERROR(TrainingLog::CheckName(settings.log));
  RUNNEL_ASSIGN_OR_RETURN(const LoadedRun run, SetUpAndLoad(settings, context.logger));
  const RunSetup& setup = run.setup;
  RUNNEL_RETURN_IF_ERROR(CheckTrainingBackend(setup.settings, setup.format));
  RUNNEL_ASSIGN_OR_RETURN(const RunClaim claim, RunClaim::Begin(setup.settings.checkpoint_dir));
  RUNNEL_RETURN_IF_ERROR(CheckFolderIsFree(setup.settings.checkpoint_dir));
  if (!setup.note.empty()) context.logger->Log(Severity::kWarning, setup.note);
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(setup.settings.recipe));
  if (recipe.family->is_emulated) {
    context.logger->Log(Severity::kInfo, absl::StrCat("recipe ", recipe.text,
                                                      ": products are emulated, of floats that are "
                                                      "rounded to its grids"));
  }
  TrainingJob job;
  job.setup = &setup;
  job.data = &run.data;
  job.claim = &claim;
  job.stop_step = setup.stop_step;
  RUNNEL_ASSIGN_OR_RETURN(StartWeights start, StartOf(setup, context.logger));
  if (!start.note.empty()) context.logger->Log(Severity::kWarning, start.note);
  job.state = std::move(start.state);
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<RunPlanner> planner,
                          MakePolicyPlanner(job, context));
  job.planner = planner.get();
  RUNNEL_ASSIGN_OR_RETURN(TrainingRules rules,
                          MakeTrainingRules(setup, job.first_step, job.changes, {}));
  job.rules = &rules;
  job.early_stop = EarlyStopOf(setup);
  const auto logs = TrainingLog::Files(setup.settings.log, setup.settings.tensorboard);
  if (!logs.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(job.log, TrainingLog::Create(logs));
  }
  std::optional<JournalWriter> journal;
  if (!setup.settings.journal.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(journal, JournalWriter::Create(setup.settings.journal));
    RUNNEL_RETURN_IF_ERROR(journal->Append(
        RunStarted{setup.settings, setup.model.name, ModelSha256(setup.model), setup.training}));
  }
  return RunToTheEnd(std::move(job), journal.has_value() ? &*journal : nullptr, context, result);
}

}  // namespace runnel
