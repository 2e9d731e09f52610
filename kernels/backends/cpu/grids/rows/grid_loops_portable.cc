#include "kernels/backends/cpu/grids/grid_loops.h"

namespace runnel::cpu {
namespace {
#include "kernels/backends/cpu/grids/rows/float_body.inc"
#include "kernels/backends/cpu/grids/rows/loops_body.inc"
}  // namespace

extern const GridLoops kPortableGridLoops;
constinit const GridLoops kPortableGridLoops = MakeGridLoops(Isa::kPortable);

}  // namespace runnel::cpu
