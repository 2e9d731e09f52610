#pragma once

// Packs tiles of B for product.h.

#include "kernels/hexagon/dsp/images.h"
#include "kernels/hexagon/dsp/product.h"

namespace runnel::hexagon {

// B[k] is a row of lanes: k reads at offsets[k], k < 4 * steps (where A is 0, any offset will do).
void PackLaneRows(LaneReader& reader, const uint32_t* offsets, int steps, int lanes, Vector* b);

// B's lanes are rows of 128 k, 32 steps: lane(i) gives the i-th lane's vector. Lanes past `lanes`
// repeat the last one. Writes steps 0..31; `spare` has room for 64 vectors.
template <typename Lane>
void PackDepthRows(const Lane& lane, int lanes, Vector* spare, Vector* b);

// out[j] lane i = word j of rows[i]: 32 x 32 words; both have 32 vectors, and `rows` is
// overwritten.
void TransposeWords(Vector* rows, Vector* spare, Vector* out, int out_stride);

template <typename Lane>
void PackDepthRows(const Lane& lane, int lanes, Vector* spare, Vector* b) {
  const int vectors = TileVectors(lanes);
  const Vector sign = SplatBytes(128);
  for (int n = 0; n < vectors; ++n) {
    for (int i = 0; i < kVectorWords; ++i) {
      spare[i] = Q6_V_vxor_VV(lane(Min(n * kVectorWords + i, lanes - 1)), sign);
    }
    TransposeWords(spare, spare + kVectorWords, b + n, vectors);
  }
}

}  // namespace runnel::hexagon
