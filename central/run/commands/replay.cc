// `replay`: trains again from the beginning with the decisions that a journal recorded, and
// compares the weights.

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/planning/fixed_planner.h"
#include "central/run/commands/commands.h"
#include "central/run/own_model.h"
#include "central/run/run_planning.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// A run as its journal records it: plans with their first steps, up to an end.
struct RecordedRun {
  RunStarted started;
  std::vector<PlanDecided>
      plans;  // ascending from_step; a later one of the same step replaces the earlier
  std::vector<TrainingChange> changes;  // changes of the training, ascending
  // By the first step for which they hold: what the run was to have in all. Whoever resumed it may
  // have said another number; a plan begins there.
  std::map<int64_t, int64_t> epochs;
  int64_t end_step = 0;
  std::string weights_sha256;  // empty: the run did not finish
};

// Makes the records after this step void.
void GoBackTo(int64_t step, RecordedRun& run) {
  std::erase_if(run.plans, [step](const PlanDecided& plan) { return plan.from_step > step; });
  DropChangesAfter(step, run.changes);
  run.epochs.erase(run.epochs.upper_bound(step), run.epochs.end());
  run.weights_sha256.clear();
}

absl::StatusOr<RecordedRun> Understand(const Journal& journal, const std::string& path) {
  RecordedRun run;
  run.started = std::get<RunStarted>(journal.records.front());
  run.epochs[0] = run.started.settings.epochs;
  for (const JournalRecord& record : journal.records) {
    if (const auto* resumed = std::get_if<RunResumed>(&record)) {
      GoBackTo(resumed->step, run);
      if (resumed->epochs > 0) run.epochs[resumed->step] = resumed->epochs;
    } else if (const auto* recovered = std::get_if<Recovered>(&record)) {
      GoBackTo(recovered->step, run);
    } else if (const auto* plan = std::get_if<PlanDecided>(&record)) {
      std::erase_if(run.plans,
                    [&](const PlanDecided& old) { return old.from_step == plan->from_step; });
      run.plans.push_back(*plan);
    } else if (const auto* changed = std::get_if<TrainingChanged>(&record)) {
      AddTrainingChange(changed->change, run.changes);
    } else if (const auto* finished = std::get_if<RunFinished>(&record)) {
      run.end_step = finished->step;
      run.weights_sha256 = finished->weights_sha256;
    }
  }
  if (run.weights_sha256.empty() || run.plans.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--journal ", path, ": the run did not finish, there are no weights to compare with"));
  }
  return run;
}

std::string OrNone(const std::string& options) { return options.empty() ? "none" : options; }

// Floating-point programs give the same bytes within one numerics class and with the same options
// only. Empty: each stage was computed as recorded; else which was not.
std::string OtherArithmetic(const PlanDecided& recorded, const PlanDecided& replayed) {
  std::string others;
  for (size_t i = 0; i < recorded.plan.stages.size(); ++i) {
    const StagePlan& stage = recorded.plan.stages[i];
    const JournalDevice& then = OfSoleDevice(stage, recorded.devices);
    const JournalDevice& now = OfSoleDevice(replayed.plan.stages[i], replayed.devices);
    const std::string layers =
        absl::StrCat("; layers ", stage.first_layer, " to ", stage.last_layer, " from step ",
                     recorded.from_step, " on were computed ");
    if (then.numerics_class != now.numerics_class) {
      absl::StrAppend(&others, layers, "in class ", then.numerics_class, ", here in ",
                      now.numerics_class);
    }
    if (then.backend_options != now.backend_options) {
      absl::StrAppend(&others, layers, "with backend options ", OrNone(then.backend_options),
                      ", here with ", OrNone(now.backend_options));
    }
  }
  return others;
}

// As the run of the journal at this path was set up, with the data that are here. InvalidArgument:
// the model or the data are others.
absl::StatusOr<RunSetup> SetUpAs(const RunStarted& started, const RunSettings& settings,
                                 const LoadedRun& here, const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(
      RunSetup setup,
      SetUpRun(settings, SampleFacts{here.setup.model.input, here.setup.model.classes}));
  RUNNEL_RETURN_IF_ERROR(SetTrainingSamples(here.data.train->size(), setup));
  TrainingSettings recorded = started.training;
  if (settings.epochs != started.settings.epochs) recorded.run_steps = setup.training.run_steps;
  if (!IsModel(setup.model, setup.row->defaults, started.model_sha256) ||
      !(setup.training == recorded)) {
    return absl::InvalidArgumentError(absl::StrCat("--journal ", path, ": its model ",
                                                   started.model,
                                                   " or data set is not the one that is here now"));
  }
  return setup;
}

}  // namespace

absl::Status ReplayCommand(const std::string& journal_path, const std::string& summary_path,
                           const CommandContext& context) {
  if (!summary_path.empty() && summary_path != "-")
    RUNNEL_RETURN_IF_ERROR(CheckCanWrite(summary_path));
  RUNNEL_ASSIGN_OR_RETURN(const Journal journal, ReadJournal(journal_path));
  RUNNEL_ASSIGN_OR_RETURN(const RecordedRun run, Understand(journal, journal_path));
  RunSettings settings = run.started.settings;
  settings.checkpoint_dir.clear();
  settings.journal.clear();
  settings.log.clear();
  settings.tensorboard.clear();
  settings.report.clear();
  settings.metrics_port.reset();
  settings.measure_noise = -1;  // plans follow the journal
  settings.caps.clear();
  RUNNEL_ASSIGN_OR_RETURN(const LoadedRun first, SetUpAndLoad(settings, context.logger));
  RUNNEL_ASSIGN_OR_RETURN(StartWeights start, StartOf(first.setup, context.logger));
  ModelState state = std::move(start.state);
  RuleStates counts;
  TrainingOutcome outcome;
  std::string others;
  for (size_t i = 0; i < run.plans.size(); ++i) {
    const Plan& plan = run.plans[i].plan;
    // All devices on this host: which device had which layers does not matter within one numerics
    // class.
    if (settings.local_workers > 0) {
      settings.local_workers = static_cast<int64_t>(plan.stages.size());
      settings.workers = 0;
      settings.at_least.reset();
    }
    settings.epochs = std::prev(run.epochs.upper_bound(run.plans[i].from_step))->second;
    settings.max_batches = i + 1 < run.plans.size() ? run.plans[i + 1].from_step : run.end_step;
    RUNNEL_ASSIGN_OR_RETURN(const RunSetup setup,
                            SetUpAs(run.started, settings, first, journal_path));
    RUNNEL_ASSIGN_OR_RETURN(TrainingRules rules, MakeCountingRules(setup, counts));
    TrainingJob job;
    job.rules = &rules;
    job.setup = &setup;
    job.data = &first.data;
    job.first_step = run.plans[i].from_step;
    job.stop_step = settings.max_batches;
    job.state = std::move(state);
    Plan local = plan;
    for (size_t stage = 0; stage < local.stages.size(); ++stage) {
      local.stages[stage].GiveTo(static_cast<int>(stage));
    }
    FixedPlanner planner(std::move(local));
    job.planner = &planner;
    job.changes = run.changes;
    RUNNEL_ASSIGN_OR_RETURN(outcome, RunTrainingJob(std::move(job), nullptr, context));
    state = outcome.state;
    counts = rules.StatesAt(settings.max_batches);
    others += OtherArithmetic(run.plans[i], outcome.plans.back());
  }
  if (!summary_path.empty()) {
    // The work is done: what cannot be written now is no wrong input.
    const absl::Status written = WriteSummary(outcome.summary, summary_path);
    if (!written.ok()) return absl::InternalError(written.message());
  }
  if (outcome.summary.weights_sha256 != run.weights_sha256) {
    return absl::FailedPreconditionError(
        absl::StrCat("replay of ", journal_path, " came to weights ",
                     outcome.summary.weights_sha256, ", the run to ", run.weights_sha256, others));
  }
  context.print(
      absl::StrCat("replayed ", run.end_step, " steps: the same weights ", run.weights_sha256));
  if (outcome.summary.gates.has_value()) context.print(GateText(*outcome.summary.gates));
  return absl::OkStatus();
}

}  // namespace runnel
