// The tile loops for any machine.

#define RUNNEL_TILE

#include "compress/kernels/tile_loops.inc"

namespace runnel {

const TileKernels kScalarTileKernels = {EncodeTiles, DecodeTiles};

}  // namespace runnel
