#pragma once

// The shell around the coordinator: processes, streams, feed, files, progress. One run, or one
// stretch of a run.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/display/run_display.h"
#include "central/planning/planner.h"
#include "central/planning/rules/training_rules.h"
#include "central/records/checkpoint.h"
#include "central/records/journal.h"
#include "central/records/run_claim.h"
#include "central/records/summary.h"
#include "central/records/training_log.h"
#include "central/run/machines/early_stop.h"
#include "central/run/run_setup.h"
#include "central/run/workers/local_workers.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/port_answer.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/control/members.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// What a run starts from.
struct TrainingJob {
  // Borrowed; all outlive the trainer.
  const RunSetup* setup = nullptr;
  const DatasetSplits* data = nullptr;  // null if plan_only
  Planner* planner = nullptr;
  TrainingRules* rules = nullptr;   // null: nothing changes
  const RunClaim* claim = nullptr;  // null: nobody else can have the run
  int64_t first_step = 0;
  int64_t stop_step = 0;
  ModelState state;                       // all layers; empty: drawn from the seed
  Generation generation = Generation(1);  // of the first plan
  bool plan_only = false;                 // end when the plan is made
  bool lists_programs = false;            // and its stages have said what they would run
  // Of no steps: for the figures, not for the state. By the stages, where there are several.
  bool evaluate_only = false;
  // Evaluations look at the test set although there are validation samples.
  bool on_test_set = false;
  // Decided before: up to first_step, or all that a replay knows.
  std::vector<TrainingChange> changes;
  std::optional<TrainingLog> log = {};
  EarlyStop early_stop = {};
  std::string dry_runs_state = {};  // DryRuns' in a check-point, checked; empty: none

  // The samples of evaluations. Of a job with data.
  const Dataset& evaluated() const {
    return data->validation == nullptr || on_test_set ? *data->test : *data->validation;
  }
};

// What it came to.
struct TrainingOutcome {
  RunSummary summary;
  Plan plan;
  std::vector<PlanDecided> plans;        // as journalled
  std::vector<ProgramListing> programs;  // by stage, as Coordinator::programs
  ModelState state;                      // at the end; empty if only planned or evaluated
  double evaluation_s = 0;               // of a job that only evaluates, under the last plan
  int64_t step = 0;
  std::vector<TrainingChange> changes;  // decided up to `step`
  bool stopped_by_user = false;
};

// Borrowed; all outlive the trainer.
struct TrainerParts {
  Transport* transport = nullptr;
  ControlTransport* control = nullptr;
  const Clock* clock = nullptr;
  Logger* logger = nullptr;
  RunDisplay* display = nullptr;
  JournalWriter* journal = nullptr;  // null: none is kept
  bool start_workers = true;         // false: all workers dial in by themselves (tests)
  Enrolment enrolment = {};
  // Shows this central, at its control address, to orders of this host while the result lives; null:
  // nobody looks for it.
  std::function<absl::StatusOr<std::shared_ptr<void>>(const std::string& control_address)> show =
      nullptr;
  // Asks whether somebody listens at a data address; null: by TCP. Tests whose addresses are none.
  std::function<void(const std::string&, std::function<void(PortAnswer)>)> ask_port = nullptr;
};

class Trainer {
 public:
  Trainer(TrainingJob job, TrainerParts parts);
  ~Trainer();

  // Runs to the end, on the calling thread, which must live as long as the process (local workers
  // die with it) and when all check-points are written. Errors: what went wrong, with what the user
  // can do. After an error the last check-point stands.
  absl::StatusOr<TrainingOutcome> Run();
  // The last barrier that all stages have reached, also after an error. On the thread of Run.
  int64_t step() const;
  // Ends at the next barrier, with a check-point. Any thread.
  void StopAtBarrier();
  // Whether the weights are gone when it ends before the last step. Any thread.
  bool LosesWeights() const;
  // Ends at once; Run returns Cancelled. Any thread.
  void Cancel();

  // What an operator asks for; MemberCalls says what each means. Any thread but that of Run, which
  // answers within some seconds. Unavailable: it does not.
  absl::StatusOr<MemberList> Members();
  absl::Status Drain(const std::string& name);
  absl::Status Pause(bool paused);
  absl::Status Replan();
  absl::StatusOr<std::string> Trace(int64_t window_ms);
  absl::StatusOr<Planner::LateAnswer> WhatIf(const std::string& assumption);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runnel
