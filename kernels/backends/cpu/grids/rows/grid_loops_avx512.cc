#if defined(__x86_64__)
#include "kernels/backends/cpu/grids/grid_loops.h"

namespace runnel::cpu {
namespace {
#include "kernels/backends/cpu/grids/rows/float_body.inc"
#include "kernels/backends/cpu/grids/rows/loops_body.inc"
}  // namespace

extern const GridLoops kAvx512GridLoops;
constinit const GridLoops kAvx512GridLoops = MakeGridLoops(Isa::kAvx512);

}  // namespace runnel::cpu
#endif
