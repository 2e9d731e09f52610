#pragma once

// Packs tiles of B for product.h.

#include "kernels/hexagon/dsp/images.h"
#include "kernels/hexagon/dsp/product.h"

namespace runnel::hexagon {

// B[k] is a row of lanes: k reads as reads[k] says, k < 4 * steps (where A is 0, any will do).
void PackLaneRows(LaneReader& reader, const LaneRead* reads, int steps, int lanes, Vector* b);

// B's lanes are rows of 128 k, 32 steps: lane(i) gives the i-th lane's vector. Lanes past `lanes`
// repeat the last one. Writes steps 0..31; `spare` has room for 64 vectors.
template <typename Lane>
void PackDepthRows(const Lane& lane, int lanes, Vector* spare, Vector* b);

// Packs A, whose row m is the bytes at rows + m * stride, `depth` of them; to.steps may be more
// than they need. `spare`: room for 4 * to.steps bytes, aligned.
void PackByteRows(const int8_t* rows, int stride, int depth, uint8_t* spare, PackedRows& to);
// Packs A, whose column k is the to.rows bytes at values + k * to.rows.
void PackByteColumns(const int8_t* values, int depth, PackedRows& to);

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
