#pragma once

// What each command of runnel-central does, once its flags are known.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/run/trainer.h"
#include "central/settings/run_settings.h"
#include "proto/transport/control/members.h"

namespace runnel {

// What commands work with; borrowed.
struct CommandContext {
  Transport* transport = nullptr;
  ControlTransport* control = nullptr;
  const Clock* clock = nullptr;
  Logger* logger = nullptr;
  // Makes the display of a run on this metrics port (-1: no HTTP), called once before it begins.
  std::function<absl::StatusOr<RunDisplay*>(int64_t metrics_port)> make_display;
  // Called with the trainer while it runs and with null when it is done: where Ctrl-C goes.
  std::function<void(Trainer*)> on_trainer;
  // Writes results for people, with a line end.
  std::function<void(const std::string& text)> print;
  Enrolment enrolment;
  // Folder of the certificate authority; empty: none.
  std::string home;
  // Has a central elsewhere revoke a worker's certificates.
  std::function<absl::Status(const std::string& central, const std::string& name)> revoke_at;
  // How the central at an address is given orders.
  std::function<absl::StatusOr<MemberCalls>(const std::string& central)> members_at;
};

// One job with the context's display, reachable by Ctrl-C. `journal` may be null; after an error
// its last record says at which step the run stopped and why.
absl::StatusOr<TrainingOutcome> RunTrainingJob(TrainingJob job, JournalWriter* journal,
                                               const CommandContext& context);

// All commands return OK if they did what they were asked for, else one line for the user.
absl::Status TrainCommand(const RunSettings& settings, const CommandContext& context);

struct ResumeArguments {
  std::string checkpoint_dir;
  std::optional<int64_t> local_workers;
  std::optional<int64_t> workers;
  std::optional<int64_t> max_batches;
  std::optional<std::string> summary;
  // Where these are now; none: where they were.
  std::optional<std::string> data_dir;
  std::optional<std::string> journal;  // empty: none is kept any more
  std::optional<std::string> listen;
  std::optional<int64_t> metrics_port;
};
absl::Status ResumeCommand(const ResumeArguments& arguments, const CommandContext& context);

// Trains again what a journal tells of and compares the weights; FailedPrecondition if they differ.
absl::Status ReplayCommand(const std::string& journal, const std::string& summary,
                           const CommandContext& context);

// Shows the plan that a run would use, its schedule, and what would change under each assumption
// (subcommand_what_if.h). lists_programs: also what its stages would run on which processor.
absl::Status PlanCommand(const RunSettings& settings, const std::vector<std::string>& what_if,
                         bool lists_programs, const CommandContext& context);

struct EvalArguments {
  std::string checkpoint_dir;
  std::optional<std::string> data_dir;
  std::string summary;
};
// Accuracy of the newest weights in a check-point folder on the test set.
absl::Status EvalCommand(const EvalArguments& arguments, const CommandContext& context);

}  // namespace runnel
