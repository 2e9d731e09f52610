#pragma once

// The flags of a run, for the commands that set one up: train, plan. Each is a row of RunFields
// (central/settings/run_fields.h).

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "central/cli/command.h"
#include "central/run/commands/commands.h"
#include "central/settings/run_settings.h"

namespace runnel {

// Values of the flags.
struct RunFlags {
  RunSettings settings;
  absl::Status status;          // the first value that was wrong
  std::set<std::string> given;  // names of the flags that were set, by the line or the file
  // --milestones as it was given, where it is shares of the run.
  std::string milestone_shares;
  bool quick = false;
  // Flags that only --help-all shows, and the group that each is of.
  std::vector<std::pair<CLI::Option*, std::string>> seldom;
};

// Adds a flag for every row, by group. `flags` must outlive the parsing.
void AddRunFlags(const Command& command, RunFlags& flags);

// Adds only the flags of these names, for commands that set up a run which does not train; no
// --config.
void AddRunFlags(const Command& command, const std::vector<std::string>& names, RunFlags& flags);

// After parsing: takes from the file of --config what the command line does not say, then fills in
// what a run over several workers has unless it is told otherwise: policy `runnel`, and bits that
// follow the links unless codecs were given. Nothing of this with --quick. A policy that plans from
// predictions has AccEPT's network as its predictor, unless another one is given. Milestones that
// are shares become a rate. The settings; InvalidArgument or NotFound names file, flag and what would be right.
absl::StatusOr<RunSettings> FinishRunFlags(const Command& command, RunFlags& flags);

// A run with workers of other hosts that is not told where to listen has those that wait at a central
// of this host. InvalidArgument: there are several such centrals.
absl::Status ListenWhereWorkersWait(const RunFlags& flags, const CommandContext& context,
                                    RunSettings& settings);

}  // namespace runnel
