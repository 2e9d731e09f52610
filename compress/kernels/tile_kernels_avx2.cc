// The tile loops for AVX2.

#if defined(__x86_64__)

#define RUNNEL_TILE __attribute__((target("avx2,popcnt")))

#include "compress/kernels/tile_loops.inc"

namespace runnel {

const TileKernels kAvx2TileKernels = {EncodeTiles, DecodeTiles};

}  // namespace runnel

#endif  // defined(__x86_64__)
