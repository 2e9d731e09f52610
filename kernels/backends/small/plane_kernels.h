#pragma once

// Pools and batch norm of a program by the primitives: piece by piece, each copied into the nearest
// memory (L1), computed there and copied out. Halves are widened on their way in and rounded on their
// way out. L1's size changes no byte.
//
// || A pool's tile is rows of one plane. A tile that does not fit (one window over a plane that is
// larger than L1) takes memory of its own. Of batch norm a whole channel lies in L1 where it fits,
// else a piece of it at a time, copied in once for each pass.

#include "absl/status/status.h"
#include "kernels/backends/host/call.h"
#include "kernels/backends/small/products.h"

namespace runnel::small {

using PlaneKernel = absl::Status (*)(const host::Call& call, NearMemory l1);

// Null: the code is none of these.
PlaneKernel FindPlaneKernel(OpCode code);

}  // namespace runnel::small
