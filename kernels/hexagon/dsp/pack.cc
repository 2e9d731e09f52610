#include "kernels/hexagon/dsp/pack.h"

namespace runnel::hexagon {
namespace {

int32_t SumOfWords(Vector words) {
  alignas(kVectorBytes) int32_t lanes[kVectorWords];
  *reinterpret_cast<Vector*>(lanes) = words;
  int32_t sum = 0;
  for (int32_t lane : lanes) sum += lane;
  return sum;
}

// Four rows of 128 bytes as 128 words of four.
RUNNEL_INLINE Words Interleave(Vector r0, Vector r1, Vector r2, Vector r3) {
  const VectorPair r01 = Q6_W_vshuff_VVR(r1, r0, -1);
  const VectorPair r23 = Q6_W_vshuff_VVR(r3, r2, -1);
  const VectorPair low = Q6_W_vshuff_VVR(Q6_V_lo_W(r23), Q6_V_lo_W(r01), -2);
  const VectorPair high = Q6_W_vshuff_VVR(Q6_V_hi_W(r23), Q6_V_hi_W(r01), -2);
  return {{Q6_V_lo_W(low), Q6_V_hi_W(low), Q6_V_lo_W(high), Q6_V_hi_W(high)}};
}

template <int kVectors, int kSegments>
void PackSteps(LaneReader reader, const LaneRead* reads, int steps, Vector* b) {
  const Vector sign = SplatBytes(128);
  for (int step = 0; step < steps; ++step, reads += 4, b += kVectors) {
    const Vector r0 = Q6_V_vxor_VV(reader.Read<kSegments>(reads[0]), sign);
    const Vector r1 = Q6_V_vxor_VV(reader.Read<kSegments>(reads[1]), sign);
    const Vector r2 = Q6_V_vxor_VV(reader.Read<kSegments>(reads[2]), sign);
    const Vector r3 = Q6_V_vxor_VV(reader.Read<kSegments>(reads[3]), sign);
    const Words words = Interleave(r0, r1, r2, r3);
    for (int n = 0; n < kVectors; ++n) b[n] = words.v[n];
  }
}

template <int kVectors>
void PackSegments(LaneReader& reader, const LaneRead* reads, int steps, Vector* b) {
  switch (reader.segments()) {
    case 1:
      return PackSteps<kVectors, 1>(reader, reads, steps, b);
    case 2:
      return PackSteps<kVectors, 2>(reader, reads, steps, b);
    case 4:
      return PackSteps<kVectors, 4>(reader, reads, steps, b);
    case 8:
      return PackSteps<kVectors, 8>(reader, reads, steps, b);
    default:
      return PackSteps<kVectors, 0>(reader, reads, steps, b);
  }
}

}  // namespace

void PackLaneRows(LaneReader& reader, const LaneRead* reads, int steps, int lanes, Vector* b) {
  switch (TileVectors(lanes)) {
    case 4:
      return PackSegments<4>(reader, reads, steps, b);
    case 2:
      return PackSegments<2>(reader, reads, steps, b);
    default:
      return PackSegments<1>(reader, reads, steps, b);
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

void PackByteRows(const int8_t* rows, int stride, int depth, uint8_t* spare, PackedRows& to) {
  for (int first = 0, panel = 0; first < to.rows; first += panel) {
    panel = PanelRows(to.rows - first);
    for (int m = 0; m < panel; ++m) {
      const int8_t* row = rows + (first + m) * stride;
      Vector sums = Q6_V_vzero();
      for (int k = 0; k < 4 * to.steps; k += kVectorBytes) {
        const Vector bytes = KeepBytes(Load(row + k), depth - k);
        *reinterpret_cast<Vector*>(spare + k) = bytes;
        sums = Q6_Vw_vrmpyacc_VwVbVb(sums, bytes, SplatBytes(1));
      }
      to.start[first + m] = -128 * SumOfWords(sums);
      const auto* words = reinterpret_cast<const int32_t*>(spare);
      int32_t* target = to.words + first * to.steps + m;
      for (int step = 0; step < to.steps; ++step, target += panel) *target = words[step];
    }
  }
}

void PackByteColumns(const int8_t* values, int depth, PackedRows& to) {
  alignas(kVectorBytes) int32_t words[kTileLanes];
  int32_t* targets[kTileLanes];
  int panels[kTileLanes];
  int panel = 0, panel_end = 0;
  to.steps = (depth + 3) / 4;
  for (int lane = 0; lane < to.rows; lane += kTileLanes) {
    const int lanes = Min(kTileLanes, to.rows - lane);
    for (int i = 0; i < lanes; ++i) {
      if (lane + i == panel_end) {
        panel = PanelRows(to.rows - panel_end);
        panel_end += panel;
      }
      const int first = panel_end - panel;
      targets[i] = to.words + first * to.steps + lane + i - first;
      panels[i] = panel;
    }
    Vector sums[4] = {Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero()};
    for (int k = 0; k < depth; k += 4) {
      Vector row[4];
      for (int i = 0; i < 4; ++i) {
        row[i] = k + i < depth ? Load(values + (k + i) * to.rows + lane) : Q6_V_vzero();
      }
      const Words packed = Interleave(row[0], row[1], row[2], row[3]);
      for (int n = 0; n < 4; ++n) {
        reinterpret_cast<Vector*>(words)[n] = packed.v[n];
        sums[n] = Q6_Vw_vrmpyacc_VwVbVb(sums[n], packed.v[n], SplatBytes(1));
      }
      for (int i = 0; i < lanes; ++i) {
        *targets[i] = words[i];
        targets[i] += panels[i];
      }
    }
    for (int n = 0; n < 4; ++n) reinterpret_cast<Vector*>(words)[n] = sums[n];
    for (int i = 0; i < lanes; ++i) to.start[lane + i] = -128 * words[i];
  }
}

}  // namespace runnel::hexagon
