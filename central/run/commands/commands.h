#pragma once

// The commands of runnel-central, once their flags are known.

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

// Parts that commands work with; borrowed.
struct CommandContext {
  Transport* transport = nullptr;
  ControlTransport* control = nullptr;
  const Clock* clock = nullptr;
  Logger* logger = nullptr;
  // Makes the display of a run, called once before it begins. Its page stays for linger_s after the
  // command, while somebody reads it.
  std::function<absl::StatusOr<RunDisplay*>(const RunSettings& settings)> make_display;
  // Called with the trainer while it runs and with null when it is done: where Ctrl-C goes.
  std::function<void(Trainer*)> on_trainer;
  // Writes results for people, with a line end.
  std::function<void(const std::string& text)> print;
  Enrolment enrolment;
  // TrainerParts::show.
  std::function<absl::StatusOr<std::shared_ptr<void>>(const std::string& control_address)> show;
  // Waits for devices, and lets runs have them, until a signal (waiting_room.h).
  std::function<absl::Status(const std::string& listen)> serve;
  // Where a central of this host waits with devices; empty: none does. InvalidArgument: several.
  std::function<absl::StatusOr<std::string>()> waiting_at;
  // Folder of the certificate authority; empty: none.
  std::string home;
  // Asks a central elsewhere to revoke a worker's certificates.
  std::function<absl::Status(const std::string& central, const std::string& name)> revoke_at;
  // Gives orders to the central at an address; empty: to the one of this user on this host.
  std::function<absl::StatusOr<MemberCalls>(const std::string& central)> members_at;
};

// Runs one job with the context's display, stopped by Ctrl-C. `journal` may be null; after an error
// its last record has the step at which the run stopped and the reason.
absl::StatusOr<TrainingOutcome> RunTrainingJob(TrainingJob job, JournalWriter* journal,
                                               const CommandContext& context);

// All commands return OK if they did their work, else one line for the user.
// result: what the run came to, if wanted.
absl::Status TrainCommand(const RunSettings& settings, const CommandContext& context,
                          RunSummary* result = nullptr);
// The same run once for each seed, one after the other, and what they came to together: the mean and
// the deviation, in the file of --summary. Files and folders of a run have its seed in their name.
absl::Status TrainSeedsCommand(const RunSettings& settings, const std::vector<uint64_t>& seeds,
                               const CommandContext& context);

struct ResumeArguments {
  std::string checkpoint_dir;
  std::optional<int64_t> local_workers;
  std::optional<int64_t> workers;
  std::optional<int64_t> epochs;  // of the run from its start
  std::optional<int64_t> max_batches;
  std::optional<std::string> summary;
  std::string report;  // empty: none
  // New places; none: as before.
  std::optional<std::string> data_dir;
  std::optional<std::string> journal;  // empty: none is kept any more
  std::optional<std::string> listen;
  std::optional<int64_t> metrics_port;  // -1: none any more
};
absl::Status ResumeCommand(const ResumeArguments& arguments, const CommandContext& context);

// Trains again from a journal and compares the weights; FailedPrecondition if they differ.
absl::Status ReplayCommand(const std::string& journal, const std::string& summary,
                           const CommandContext& context);

// Shows the plan that a run would use, its schedule, and the changes under each assumption
// (central/planning/what_if.h). lists_programs: also the instructions of its stages and their processors.
absl::Status PlanCommand(const RunSettings& settings, const std::vector<std::string>& what_if,
                         bool lists_programs, const CommandContext& context);

// Either a folder of check-points or a model in integers, which is written as ONNX alone.
struct ExportArguments {
  std::string checkpoint_dir;
  std::string quantized;
  std::string onnx;  // files to write; empty: not
  std::string npz;
  int64_t batch = 0;  // of the samples that an engine gives the ONNX file at a time; 0: any
};

// Writes the newest weights of a folder for other engines. Errors name the file, or what of the
// model they do not have.
absl::Status ExportCommand(const ExportArguments& arguments, const CommandContext& context);

struct EvalArguments {
  std::string checkpoint_dir;
  std::optional<std::string> data_dir;
  std::string summary;
};
// Accuracy of the newest weights in a check-point folder on the test set.
absl::Status EvalCommand(const EvalArguments& arguments, const CommandContext& context);

}  // namespace runnel
