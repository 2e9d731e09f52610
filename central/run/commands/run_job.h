#pragma once

// What the commands that run a job share.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/run/commands/commands.h"
#include "central/run/run_planning.h"

namespace runnel {

// Before the work, that files of results can be written; empty: none is wanted. InvalidArgument.
absl::Status CheckSummary(const std::string& path);
absl::Status CheckReport(const std::string& path);
// After the work: whatever cannot be written then is no wrong input.
absl::Status AsFailedRun(const absl::Status& status);

EarlyStop EarlyStopOf(const RunSetup& setup);
// The planner of a run with this state and these steps. Warns of facts that the planner does not
// know.
absl::StatusOr<std::unique_ptr<RunPlanner>> MakePolicyPlanner(const TrainingJob& job,
                                                              const CommandContext& context);

// Runs the job, closes the journal, which may be null, writes the summary and tells what came out.
// Cancelled: the user stopped it before its end.
absl::Status RunToTheEnd(TrainingJob job, JournalWriter* journal, const CommandContext& context,
                         RunSummary* result = nullptr);

}  // namespace runnel
