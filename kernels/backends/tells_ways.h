#pragma once

// What an executable tells of the ways in which it computes, where the program leaves it a choice.

#include "kernels/ir/program.h"

namespace runnel {

// Beside Executable, of a backend that decides when it prepares a program.
class TellsWays {
 public:
  virtual ~TellsWays() = default;
  // Whether a product that has Instruction::winograd is computed so. instruction: of the program.
  virtual bool IsWinograd(const Instruction& instruction) const = 0;
};

}  // namespace runnel
