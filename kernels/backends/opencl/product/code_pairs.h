#pragma once

// Which products of INT8 inference are done by one kernel with the kRequantizeCodes of their sums.
// Pure functions; any thread.

#include <vector>

#include "kernels/ir/program.h"

namespace runnel::opencl {

// Whether two operands have bytes in common.
bool Overlap(const Buffer& a, const Buffer& b);

struct CodePair {
  const Instruction* product = nullptr;
  const Instruction* requantize = nullptr;
};

// Pairs of which the product may be computed as late as the requantising, and its sums be written
// nowhere: these are a value of the scratch that only the requantising reads, and until then
// nothing overwrites what the product reads, the codes included (CompileGraph's keeps_inputs). Of
// kForwardEval alone: nobody reads the scratch behind it. Points into `program`.
std::vector<CodePair> FindCodePairs(const Program& program);

}  // namespace runnel::opencl
