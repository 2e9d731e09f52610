#pragma once

// Which values of INT8 inference lie packed on the device (NC4HW4): in planes of four channels, whose four codes of one
// position are one cell that a dot product takes. The first operator of a chain writes cells, the last one reads them.

#include <vector>

#include "kernels/ir/program.h"

namespace runnel::opencl {

// By buffer. Only of a program whose constants are given, which is a whole one: nobody else reads its scratch. A value is
// packed if every instruction that touches it has a kernel for cells, and its channels fill them: its size stays. A plane
// of one position lies alike either way, and is not counted as packed.
std::vector<bool> FindPacked(const Program& program);

}  // namespace runnel::opencl
