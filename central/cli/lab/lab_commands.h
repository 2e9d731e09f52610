#pragma once

// The commands of runnel-lab: one file each, one entry each in the list of main.cc.

#include "central/cli/subcommands/subcommand.h"

namespace runnel {

Subcommand AddSimulate(const Command& program);
Subcommand AddProfile(const Command& program);
Subcommand AddPredictorReport(const Command& program);
Subcommand AddCodecs(const Command& program);

}  // namespace runnel
