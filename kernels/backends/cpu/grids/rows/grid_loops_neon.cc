#if defined(__aarch64__)
#include "kernels/backends/cpu/grids/grid_loops.h"

namespace runnel::cpu {
namespace {
#include "kernels/backends/cpu/grids/rows/float_body.inc"
#include "kernels/backends/cpu/grids/rows/loops_body.inc"
}  // namespace

extern const GridLoops kNeonGridLoops;
constinit const GridLoops kNeonGridLoops = MakeGridLoops(Isa::kNeon);

}  // namespace runnel::cpu
#endif
