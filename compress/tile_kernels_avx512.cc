// The tile loops for AVX-512.

#if defined(__x86_64__)

#define RUNNEL_TILE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")))

#include "compress/tile_loops.inc"

namespace runnel {

const TileKernels kAvx512TileKernels = {EncodeTiles, DecodeTiles};

}  // namespace runnel

#endif  // defined(__x86_64__)
