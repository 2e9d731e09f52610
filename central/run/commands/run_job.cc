#include "central/run/commands/run_job.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/display/admin_page.h"
#include "central/display/state_json.h"
#include "central/run/commands/result_text.h"
#include "central/run/evaluator.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
absl::Status CheckSummary(const std::string& path) {
  return path.empty() || path == "-" ? absl::OkStatus() : CheckCanWrite(path);
}

absl::Status CheckReport(const std::string& path) {
  return path.empty() ? absl::OkStatus() : CheckCanWrite(path);
}

absl::Status AsFailedRun(const absl::Status& status) {
  return status.ok() ? status : absl::InternalError(status.message());
}

EarlyStop EarlyStopOf(const RunSetup& setup) {
  return {setup.settings.early_stop, setup.model.tokens() > 0};
}

absl::StatusOr<std::unique_ptr<RunPlanner>> MakePolicyPlanner(const TrainingJob& job,
                                                              const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(auto planner,
                          MakeRunPlanner(*job.setup, job.stop_step, job.first_step, job.changes));
  if (const std::string warning = planner->Warning(); !warning.empty())
    context.logger->Log(Severity::kInfo, warning);
  return planner;
}

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

absl::Status AppendTo(JournalWriter* journal, const JournalRecord& record) {
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

}  // namespace

absl::Status RunToTheEnd(TrainingJob job, JournalWriter* journal, const CommandContext& context,
                         RunSummary* result) {
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
                          ? AppendTo(journal, RunStopped{outcome->step, "by the user"})
                          : AppendTo(journal, RunFinished{outcome->step, summary.weights_sha256});
  if (!settings.summary.empty()) {
    const absl::Status written = WriteSummary(summary, settings.summary);
    if (!written.ok()) context.print(SummaryToJson(summary));
    kept.Update(written);
  }
  context.print(ResultText(*outcome, settings, last_step));
  RUNNEL_RETURN_IF_ERROR(AsFailedRun(kept));
  if (!outcome->stopped_by_user || outcome->step == last_step) return absl::OkStatus();
  context.print(settings.checkpoint_dir.empty()
                    ? "these weights are not kept: there is no --checkpoint-dir"
                    : absl::StrCat("go on with: runnel-central resume --checkpoint-dir ",
                                   settings.checkpoint_dir));
  return absl::CancelledError(
      absl::StrCat("stopped by the user after ", outcome->step, " of ", last_step, " steps"));
}

}  // namespace runnel
