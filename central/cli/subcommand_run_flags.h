#pragma once

// The flags of a run, for the commands that set one up: train, plan. Each is a row of RunFields
// (central/settings/run_fields.h).

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "central/settings/run_settings.h"

namespace runnel {

// What the flags say.
struct RunFlags {
  RunSettings settings;
  absl::Status status;  // the first value that was wrong
};

// Adds a flag for every row, by group. `flags` must outlive the parsing.
void AddRunFlags(CLI::App& app, RunFlags& flags);

// After parsing: takes from the file of --config what the command line does not say. The settings;
// InvalidArgument or NotFound names file, flag and what would be right.
absl::StatusOr<RunSettings> FinishRunFlags(CLI::App& command, RunFlags& flags);

}  // namespace runnel
