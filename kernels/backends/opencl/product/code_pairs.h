#pragma once

// Finds products of INT8 inference that one kernel computes together with the kRequantizeCodes of
// their sums. Pure functions; any thread.

#include <vector>

#include "kernels/ir/program.h"

namespace runnel::opencl {

// Whether two operands have bytes in common.
bool Overlap(const Buffer& a, const Buffer& b);

struct CodePair {
  const Instruction* product = nullptr;
  const Instruction* requantize = nullptr;
};

// Pairs whose product may be computed as late as the requantising, without writing its sums: the
// sums are a scratch value that only the requantising reads, and until then nothing overwrites the
// product's inputs, the codes included (CompileGraph's keeps_inputs). Only in kForwardEval, behind
// which nobody reads the scratch. Points into `program`.
std::vector<CodePair> FindCodePairs(const Program& program);

}  // namespace runnel::opencl
