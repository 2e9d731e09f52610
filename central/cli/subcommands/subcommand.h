#pragma once

// The commands of runnel-central: one file each, one entry each in the list of main.cc.

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "central/cli/command.h"
#include "central/run/commands/commands.h"

namespace runnel {

// A command on the command line. `run` owns the values of the flags that were added to `command`, and
// is called once, after parsing, if the command was given.
struct Subcommand {
  Command command;
  std::function<absl::Status(const CommandContext& context)> run;
};

// Adds a command with its flags to the program.
using AddSubcommandFn = Subcommand (*)(const Command& program);

Subcommand AddTrain(const Command& program);
Subcommand AddServe(const Command& program);
Subcommand AddResume(const Command& program);
Subcommand AddReplay(const Command& program);
Subcommand AddPlan(const Command& program);
Subcommand AddShow(const Command& program);
Subcommand AddCheck(const Command& program);
Subcommand AddLearn(const Command& program);
Subcommand AddPrecision(const Command& program);
Subcommand AddEval(const Command& program);
Subcommand AddPredict(const Command& program);
Subcommand AddExport(const Command& program);
Subcommand AddQuantize(const Command& program);
Subcommand AddInit(const Command& program);
Subcommand AddToken(const Command& program);
Subcommand AddRevoke(const Command& program);
Subcommand AddStatus(const Command& program);
Subcommand AddWhy(const Command& program);
Subcommand AddWhatIf(const Command& program);
Subcommand AddTrace(const Command& program);
Subcommand AddDevices(const Command& program);
Subcommand AddDrain(const Command& program);
Subcommand AddPause(const Command& program);
Subcommand AddContinue(const Command& program);
Subcommand AddReplan(const Command& program);
Subcommand AddStop(const Command& program);

// What several commands say about a flag.
inline constexpr char kAssumptionHelp[] =
    "leave:NAME (a device leaves), add:NAME=DEVICE or add:NAME=FILE.profile (one more, as fast as "
    "that), mbps:X (all links), link:NAME,NAME:X (one link)";
inline constexpr char kSummaryHelp[] = "JSON file with the result; -: standard output";

}  // namespace runnel
