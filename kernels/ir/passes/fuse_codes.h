#pragma once

// Products of INT8 inference that make codes of their own sums.

#include "kernels/ir/program.h"

namespace runnel {

// kForwardEval: a product and the kRequantizeCodes that alone reads its sums become one
// kInt8ProductToCodes, with the kPadCodes before the product, the row sums of the same input, and a
// kAddCodes of the code (its first operand) and a value that is there already. Before memory is
// planned: each buffer is written by one instruction. The rule of a kRequantizeCodes names the
// input's zero.
void FuseCodes(Program& program);

}  // namespace runnel
