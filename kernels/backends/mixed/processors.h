#pragma once

// What instructions cost by a processor's nominal rates. Pure functions; any thread.

#include "kernels/backends/backend_traits.h"
#include "kernels/ir/program.h"

namespace runnel {

// Raised when a rate or rule below changes: counted costs decide where floating-point instructions
// run, and so their bytes.
inline constexpr int kCountedRule = 5;

// Multiplications and operand bytes of an instruction.
struct CountedWork {
  double macs = 0;
  double bytes = 0;
  bool is_float = false;  // at the rate of floats; products of codes count as int8, wide ones twice
};
CountedWork CountWork(const Program& program, const Instruction& instruction);

// Whether all that the program computes is exact: the same bytes on every processor.
bool IsExact(const Program& program);

double CountedSeconds(const NominalRates& rates, const CountedWork& work);

}  // namespace runnel
