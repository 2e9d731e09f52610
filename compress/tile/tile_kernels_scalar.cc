// The tile loops for any machine.

#define RUNNEL_TILE

#include "compress/tile/tile_loops.inc"

namespace runnel {

const TileKernels kScalarTileKernels = {EncodeTiles, DecodeTiles};

}  // namespace runnel
