#pragma once

// Which instructions of a program run once for each option of a gate. Pure functions; any thread.

#include <vector>

#include "kernels/ir/program.h"

namespace runnel {

// The gate that makes a choice, or explores, by buffer of the choice; null of all other buffers. As
// long as the program stays.
std::vector<const OpSpec*> GatesByChoice(const Program& program);

// Options that do not skip.
int LevelsOf(const OpSpec& gate);

// Products and grids of samples by choice run on the rows of one option after the other. Consecutive
// ones of a gate are a group: all of it runs for the first option, then for the next one.
bool RunsByOption(const Instruction& instruction);

}  // namespace runnel
