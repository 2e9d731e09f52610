#if defined(__x86_64__)
#include "kernels/backends/cpu/grids/grid_loops.h"

namespace runnel::cpu {
namespace {
#include "kernels/backends/cpu/grids/rows/float_body.inc"
#include "kernels/backends/cpu/grids/rows/loops_body.inc"
}  // namespace

extern const GridLoops kAvx2GridLoops;
constinit const GridLoops kAvx2GridLoops = MakeGridLoops(Isa::kAvx2);

}  // namespace runnel::cpu
#endif
