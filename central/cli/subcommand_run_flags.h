#pragma once

// The flags of a run, for the commands that set one up: train, plan.

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "central/settings/run_settings.h"

namespace runnel {

// Adds a flag for every field of `settings`, which must outlive the parsing.
void AddRunFlags(CLI::App& app, RunSettings& settings);

// After parsing: takes from the file of --config what the command line does not say, and notes
// which flags were given. InvalidArgument or NotFound names file and flag.
absl::Status FinishRunFlags(CLI::App& command, RunSettings& settings);

}  // namespace runnel
