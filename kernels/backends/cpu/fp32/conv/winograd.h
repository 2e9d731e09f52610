#pragma once

// Convolutions of 3x3 with stride 1 by F(2x2, 3x3) (Lavin and Gray, arXiv 1509.09308): 16 products
// of matrices for 36, on transformed tiles of 4x4 pixels that overlap by 2. Other sums than those of
// the direct convolution, so only where an instruction says so (Instruction::winograd).

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/conv/product.h"

namespace runnel::fp32 {

// The whole convolution of the source that begins at x, with conv.finish.
void RunWinograd(const Call& call, const ConvProduct& conv, const float* x);

}  // namespace runnel::fp32
