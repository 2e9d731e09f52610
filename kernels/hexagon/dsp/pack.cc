#include "kernels/hexagon/dsp/pack.h"

namespace runnel::hexagon {

void PackLaneRows(LaneReader& reader, const uint32_t* offsets, int steps, int lanes, Vector* b) {
  const int vectors = TileVectors(lanes);
  const Vector sign = SplatBytes(128);
  for (int step = 0; step < steps; ++step, offsets += 4) {
    const Vector r0 = Q6_V_vxor_VV(reader.Read(offsets[0]), sign);
    const Vector r1 = Q6_V_vxor_VV(reader.Read(offsets[1]), sign);
    const Vector r2 = Q6_V_vxor_VV(reader.Read(offsets[2]), sign);
    const Vector r3 = Q6_V_vxor_VV(reader.Read(offsets[3]), sign);
    const VectorPair r01 = Q6_W_vshuff_VVR(r1, r0, -1);
    const VectorPair r23 = Q6_W_vshuff_VVR(r3, r2, -1);
    const VectorPair low = Q6_W_vshuff_VVR(Q6_V_lo_W(r23), Q6_V_lo_W(r01), -2);
    *b++ = Q6_V_lo_W(low);
    if (vectors == 1) continue;
    *b++ = Q6_V_hi_W(low);
    if (vectors == 2) continue;
    const VectorPair high = Q6_W_vshuff_VVR(Q6_V_hi_W(r23), Q6_V_hi_W(r01), -2);
    *b++ = Q6_V_lo_W(high);
    *b++ = Q6_V_hi_W(high);
  }
}

// A perfect shuffle of rows i and i + 16 moves the highest bit of a word's row into its column and
// the highest one of its column into its row; five of them swap all.
void TransposeWords(Vector* rows, Vector* spare, Vector* out, int out_stride) {
  Vector* from = rows;
  Vector* to = spare;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 16; ++i) {
      const VectorPair pair = Q6_W_vshuff_VVR(from[i + 16], from[i], -4);
      to[2 * i] = Q6_V_lo_W(pair);
      to[2 * i + 1] = Q6_V_hi_W(pair);
    }
    Vector* swapped = from;
    from = to;
    to = swapped;
  }
  for (int i = 0; i < 16; ++i) {
    const VectorPair pair = Q6_W_vshuff_VVR(from[i + 16], from[i], -4);
    out[2 * i * out_stride] = Q6_V_lo_W(pair);
    out[(2 * i + 1) * out_stride] = Q6_V_hi_W(pair);
  }
}

}  // namespace runnel::hexagon
