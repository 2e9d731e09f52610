#pragma once

// The commands of runnel-lab: one file each, one entry each in the list of main.cc.

#include "central/cli/subcommand.h"

namespace runnel {

Subcommand AddSimulate(CLI::App& program);
Subcommand AddProfile(CLI::App& program);
Subcommand AddPredictorReport(CLI::App& program);
Subcommand AddCodecs(CLI::App& program);

}  // namespace runnel
