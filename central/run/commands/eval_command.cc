// `eval`: the test set with the newest weights of a folder.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/run/commands/run_job.h"
#include "central/run/own_model.h"
#include "central/run/trained_weights.h"
#include "proto/base/status_macros.h"

namespace runnel {
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
