#pragma once

// What the programs of central's side share: the command line, certificates, signals and exit codes.

#include <vector>

#include "absl/strings/string_view.h"
#include "central/cli/subcommands/subcommand.h"

namespace runnel {

struct Program {
  const char* name = "";
  const char* about = "";
  std::vector<AddSubcommandFn> commands;  // in the order of --help
  std::vector<absl::string_view> moved;   // commands that runnel-lab has now
};

// The program's main: reads the command line, runs the command, returns the exit code.
int RunProgram(const Program& program, int argc, char** argv);

}  // namespace runnel
