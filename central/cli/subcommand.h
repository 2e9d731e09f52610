#pragma once

// The commands of runnel-central: one file each, one entry each in the list of main.cc.

#include <cstdint>
#include <functional>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "central/run/commands/commands.h"

namespace runnel {

// A command on the command line. `run` owns the values of the flags that were added to `app`, and
// is called once, after parsing, if the command was given.
struct Subcommand {
  CLI::App* app = nullptr;
  std::function<absl::Status(const CommandContext& context)> run;
};

// Adds a command with its flags to the program.
using AddSubcommandFn = Subcommand (*)(CLI::App& program);

Subcommand AddTrain(CLI::App& program);
Subcommand AddResume(CLI::App& program);
Subcommand AddReplay(CLI::App& program);
Subcommand AddPlan(CLI::App& program);
Subcommand AddShow(CLI::App& program);
Subcommand AddCheck(CLI::App& program);
Subcommand AddLearn(CLI::App& program);
Subcommand AddPrecision(CLI::App& program);
Subcommand AddEval(CLI::App& program);
Subcommand AddExport(CLI::App& program);
Subcommand AddQuantize(CLI::App& program);
Subcommand AddInit(CLI::App& program);
Subcommand AddToken(CLI::App& program);
Subcommand AddRevoke(CLI::App& program);
Subcommand AddStatus(CLI::App& program);
Subcommand AddDevices(CLI::App& program);
Subcommand AddDrain(CLI::App& program);
Subcommand AddPause(CLI::App& program);
Subcommand AddContinue(CLI::App& program);

// What several commands say about a flag.
inline constexpr char kSummaryHelp[] = "JSON file with the result; -: standard output";
inline const CLI::Range kCountRange(int64_t{1}, int64_t{1'000'000'000});

}  // namespace runnel
