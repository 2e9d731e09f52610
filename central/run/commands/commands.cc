#include "central/run/commands/commands.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/display/admin_page.h"
#include "central/display/state_json.h"
#include "central/planning/fixed_planner.h"
#include "central/run/evaluator.h"
#include "central/run/machines/measuring/dry_runs.h"
#include "central/run/own_model.h"
#include "central/run/rule_checks.h"
#include "central/run/run_planning.h"
#include "central/run/trained_weights.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/recipe_family.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// A file that cannot be written is found before the night that it is about.
absl::Status CheckSummary(const std::string& path) {
  return path.empty() || path == "-" ? absl::OkStatus() : CheckCanWrite(path);
}
// After the work: whatever cannot be written then is no wrong input.
absl::Status AsFailedRun(const absl::Status& status) {
  return status.ok() ? status : absl::InternalError(status.message());
}
absl::Status CheckReport(const std::string& path) {
  return path.empty() ? absl::OkStatus() : CheckCanWrite(path);
}

}  // namespace

absl::StatusOr<TrainingOutcome> RunTrainingJob(TrainingJob job, JournalWriter* journal,
                                               const CommandContext& context) {
  const RunSettings& settings = job.setup->settings;
  RUNNEL_ASSIGN_OR_RETURN(RunDisplay * display, context.make_display(settings));
  TrainerParts parts{context.transport, context.control, context.clock,
                     context.logger,    display,         journal};
  parts.enrolment = context.enrolment;
  parts.show = context.show;
  Trainer trainer(std::move(job), parts);
  context.on_trainer(&trainer);
  absl::StatusOr<TrainingOutcome> outcome = trainer.Run();
  context.on_trainer(nullptr);
  if (!outcome.ok() && journal != nullptr) {
    const RunStopped stopped{trainer.step(), std::string(outcome.status().message())};
    journal->Append(stopped).IgnoreError();
  }
  if (!settings.report.empty()) {
    const std::string page = ReportPage(StateJson(display->Shown()));
    const absl::Status written = WriteFileAtomically(settings.report, {page});
    if (!written.ok()) context.logger->Log(Severity::kWarning, std::string(written.message()));
  }
  return outcome;
}

namespace {

absl::Status Journal(JournalWriter* journal, const JournalRecord& record) {
  return journal == nullptr ? absl::OkStatus() : journal->Append(record);
}

// An error of a run, with where to go on from.
absl::Status WithAdvice(const absl::Status& status, const RunSettings& settings) {
  if (settings.checkpoint_dir.empty() || !LatestCheckpoint(settings.checkpoint_dir).ok())
    return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; go on from the last check-point with: ",
                   "runnel-central resume --checkpoint-dir ", settings.checkpoint_dir));
}

// Empty of a run that was never evaluated.
std::string EvaluationText(const RunSummary& summary) {
  if (summary.evaluations.empty()) return "";
  const int64_t step = summary.evaluations.back().step;
  return absl::StrFormat("accuracy %.2f %%, loss %.4f%s, ", summary.accuracy * 100, summary.loss,
                         step == summary.steps ? "" : absl::StrCat(" after ", step));
}

// Which stage was computed in which numerics class, where they are not all of one; else empty.
std::string SeveralClassesText(const RunSummary& summary) {
  std::set<std::string> classes;
  std::string text;
  for (size_t i = 0; i < summary.stages.size(); ++i) {
    const StagePlan& stage = summary.plan.stages[i];
    classes.insert(summary.stages[i].numerics_class);
    absl::StrAppend(&text, i == 0 ? " (layers " : ", layers ", stage.first_layer, " to ",
                    stage.last_layer, " in ", summary.stages[i].numerics_class);
  }
  return classes.size() < 2 ? "" : absl::StrCat(text, ")");
}

// "38 % of the effective multiply-adds of 8/8 (2.1 % of FP32's): 3/6 for 400 steps, ..."
std::string PrecisionText(const RunSummary& summary) {
  const PrecisionCost& cost = *summary.precision;
  constexpr size_t kMostShown = 8;
  if (cost.gates_learn) return summary.gates.has_value() ? GateText(*summary.gates) : "";
  const double skipped = 100 * (1 - cost.macs_done / cost.macs_in_full);
  if (cost.macs_of_8_8 == cost.macs_in_full)  // FP32
    return absl::StrFormat("gates left out %.1f %% of the multiply-adds", skipped);
  if (cost.share_of_8_8() > 1)  // sixteen bits
    return absl::StrFormat("%.2f %% of FP32's multiply-adds, by bits",
                           100 * cost.effective_share());
  std::string text = absl::StrFormat("%.0f %% of the multiply-adds of 8/8 (%.2f %% of FP32's)",
                                     100 * cost.share_of_8_8(), 100 * cost.effective_share());
  if (skipped > 0) absl::StrAppendFormat(&text, ", gates left out %.1f %%", skipped);
  for (size_t i = 0; i < std::min(cost.levels.size(), kMostShown); ++i) {
    const PrecisionCost::Level& level = cost.levels[i];
    if (level.bits.forward == 0) continue;
    absl::StrAppend(&text, i == 0 ? ": " : ", ", GridBitsText(level.bits), " for ", level.steps,
                    " steps");
  }
  return text;
}

EarlyStop EarlyStopOf(const RunSetup& setup) {
  return {setup.settings.early_stop, setup.model.tokens() > 0};
}

// The test set with the weights of the end, on this host.
absl::StatusOr<EvaluationSummary> EvaluateTestSet(const RunSetup& setup, const DatasetSplits& data,
                                                  const TrainingOutcome& outcome,
                                                  const CommandContext& context) {
  std::promise<absl::StatusOr<EvaluationFigures>> done;
  const auto tell = [&done](int64_t, Generation, const absl::StatusOr<EvaluationFigures>& figures) {
    done.set_value(figures);
  };
  Evaluator::Parts parts = {context.transport, context.control,   context.clock,
                            context.logger,    context.enrolment, /*on_test_set=*/true};
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluator> evaluator,
                          Evaluator::Create(setup, data, parts, tell));
  evaluator->Evaluate(outcome.step, outcome.plan.generation, outcome.state, outcome.changes);
  RUNNEL_ASSIGN_OR_RETURN(const EvaluationFigures figures, done.get_future().get());
  return EvaluationSummary{outcome.step, figures.accuracy, figures.loss, figures.counts};
}

// What came out, for people.
void PrintResult(const TrainingOutcome& outcome, const RunSettings& settings, int64_t last_step,
                 const CommandContext& context) {
  const RunSummary& summary = outcome.summary;
  context.print(absl::StrFormat(
      "%s after %s: %s%.0f samples/s, %.1f s", outcome.stopped_by_user ? "stopped" : "trained",
      summary.stopped_early
          ? absl::StrCat(summary.steps, " of ", last_step, " steps (no better in ",
                         settings.early_stop,
                         settings.early_stop == 1 ? " evaluation)" : " evaluations)")
          : absl::StrCat(summary.steps, " steps"),
      EvaluationText(summary), summary.samples_per_s, summary.wall_s));
  if (summary.test.has_value()) {
    context.print(absl::StrFormat("test set, not looked at before: accuracy %.2f %%, loss %.4f",
                                  summary.test->accuracy * 100, summary.test->loss));
  }
  context.print(absl::StrCat("weights ", summary.weights_sha256, SeveralClassesText(summary)));
  if (summary.precision.has_value()) {
    if (const std::string text = PrecisionText(summary); !text.empty()) context.print(text);
  }
}

// Runs the job, closes the journal, writes the summary and tells what came out.
absl::Status Finish(TrainingJob job, JournalWriter* journal, const CommandContext& context,
                    RunSummary* result = nullptr) {
  const RunSetup& setup = *job.setup;
  const RunSettings& settings = setup.settings;
  const DatasetSplits& data = *job.data;
  const int64_t last_step = job.stop_step;
  context.print(TrainingText(settings, setup.model.name, setup.format));
  absl::StatusOr<TrainingOutcome> outcome = RunTrainingJob(std::move(job), journal, context);
  if (!outcome.ok()) return WithAdvice(outcome.status(), settings);
  RunSummary& summary = outcome->summary;
  summary.stopped_early = !outcome->stopped_by_user && outcome->step < last_step;
  if (data.validation != nullptr && !outcome->stopped_by_user) {
    absl::StatusOr<EvaluationSummary> test = EvaluateTestSet(setup, data, *outcome, context);
    if (test.ok()) {
      summary.test = *std::move(test);
    } else {
      context.logger->Log(Severity::kWarning, absl::StrCat("the test set could not be evaluated: ",
                                                           test.status().message()));
    }
  }
  if (result != nullptr) *result = summary;
  // Files that cannot be written now are no reason to keep the result from people.
  absl::Status kept = outcome->stopped_by_user
                          ? Journal(journal, RunStopped{outcome->step, "by the user"})
                          : Journal(journal, RunFinished{outcome->step, summary.weights_sha256});
  if (!settings.summary.empty()) {
    const absl::Status written = WriteSummary(summary, settings.summary);
    if (!written.ok()) context.print(SummaryToJson(summary));
    kept.Update(written);
  }
  PrintResult(*outcome, settings, last_step, context);
  RUNNEL_RETURN_IF_ERROR(AsFailedRun(kept));
  if (!outcome->stopped_by_user || outcome->step == last_step) return absl::OkStatus();
  context.print(settings.checkpoint_dir.empty()
                    ? "these weights are not kept: there is no --checkpoint-dir"
                    : absl::StrCat("go on with: runnel-central resume --checkpoint-dir ",
                                   settings.checkpoint_dir));
  return absl::CancelledError(
      absl::StrCat("stopped by the user after ", outcome->step, " of ", last_step, " steps"));
}

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

// The planner of a run with this state and these steps. Warns of facts that the planner does not
// know.
absl::StatusOr<std::unique_ptr<RunPlanner>> MakePolicyPlanner(const TrainingJob& job,
                                                              const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(auto planner,
                          MakeRunPlanner(*job.setup, job.stop_step, job.first_step, job.changes));
  if (const std::string warning = planner->Warning(); !warning.empty())
    context.logger->Log(Severity::kInfo, warning);
  return planner;
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
  return Finish(std::move(job), journal.has_value() ? &*journal : nullptr, context, result);
}

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
  if (const auto seen = checkpoint.rules.find(std::string(EarlyStop::kName));
      seen != checkpoint.rules.end())
    RUNNEL_RETURN_IF_ERROR(job.early_stop.Restore(seen->second));
  if (const auto noise = checkpoint.rules.find(std::string(DryRuns::kName));
      noise != checkpoint.rules.end()) {
    RUNNEL_RETURN_IF_ERROR(DryRuns::CheckState(noise->second));
    job.dry_runs_state = noise->second;
  }
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
  return Finish(std::move(job), journal.has_value() ? &*journal : nullptr, context);
}

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
  for (const JournalDevice& device : outcome.plans.back().devices) {
    std::string line = absl::StrCat(device.name, " (", device.numerics_class, ")");
    const std::vector<double> layers = device.times.LayerSeconds();
    if (!layers.empty()) absl::StrAppend(&line, ": layer milliseconds");
    for (double seconds : layers) absl::StrAppendFormat(&line, " %.3f", seconds * 1e3);
    context.print(line);
  }
  PrintStageSeconds(outcome, settings, context);
  std::vector<StageOrder> stages;
  for (const StagePlan& stage : outcome.plan.stages) stages.push_back(stage.order());
  const int64_t drain = setup.schedule->drains_each_step ? setup.training.micro_batches : 0;
  constexpr int64_t kShownMicroBatches = 8;
  const auto forward_only = std::count_if(
      outcome.plan.stages.begin(), outcome.plan.stages.end(),
      [&](const StagePlan& stage) { return stage.last_layer < setup.model.frozen_front(); });
  context.print(PrintSchedule(stages, kShownMicroBatches, drain, setup.training.micro_batches,
                              static_cast<size_t>(forward_only)));
  for (size_t i = 0; i < outcome.programs.size(); ++i) {
    const std::string& name =
        OfSoleDevice(outcome.plan.stages[i], outcome.plans.back().devices).name;
    const ProgramListing& program = outcome.programs[i];
    if (lists_programs) {
      context.print(absl::StrCat(name, ": ", ToText(program)));
    } else if (program.processors.size() > 1) {
      context.print(absl::StrCat(name, ": ", SummaryOf(program)));
    }
  }
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

absl::Status EvalCommand(const EvalArguments& arguments, const CommandContext& context) {
  RUNNEL_RETURN_IF_ERROR(CheckSummary(arguments.summary));
  RUNNEL_ASSIGN_OR_RETURN(Checkpoint checkpoint,
                          NewestWeights(arguments.checkpoint_dir, context.logger));
  RunSettings settings = WithoutTraining(checkpoint.settings);
  settings.summary = arguments.summary;
  if (arguments.data_dir.has_value()) settings.data_dir = *arguments.data_dir;
  RUNNEL_ASSIGN_OR_RETURN(const LoadedRun run, SetUpAndLoad(settings, context.logger));
  const RunSetup& setup = run.setup;
  RUNNEL_RETURN_IF_ERROR(CheckModel(ModelSha256(checkpoint.model), setup,
                                    absl::StrCat("--checkpoint-dir ", arguments.checkpoint_dir)));
  TrainingJob job;
  job.setup = &setup;
  job.data = &run.data;
  job.first_step = job.stop_step = checkpoint.step;
  job.changes = std::move(checkpoint.changes);
  job.state = std::move(checkpoint.state);
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<RunPlanner> planner,
                          MakePolicyPlanner(job, context));
  job.planner = planner.get();
  RUNNEL_ASSIGN_OR_RETURN(const TrainingOutcome outcome,
                          RunTrainingJob(std::move(job), nullptr, context));
  context.print(absl::StrFormat("%s after %d steps: accuracy %.2f %%, loss %.4f on %d samples",
                                setup.model.name, checkpoint.step, outcome.summary.accuracy * 100,
                                outcome.summary.loss, run.data.test->size()));
  return settings.summary.empty() ? absl::OkStatus()
                                  : AsFailedRun(WriteSummary(outcome.summary, settings.summary));
}

}  // namespace runnel
