#pragma once

// Weight-gradients of a batch in slices, each rounded to int8 with a shift of its own before they
// are added (Mandheling, section 3.5; BatchSplit in kernels/ir/program.h).

#include "kernels/backends/hexagon/dsp/machine.h"

namespace runnel::hexagon {

// `whole`: the kernel of a whole batch. The gradient serves it for each slice's sums.
DspStatus RunShiftedSlices(Machine& machine, const DspOp& op, Kernel whole);

}  // namespace runnel::hexagon
