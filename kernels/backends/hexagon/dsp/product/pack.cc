#include "kernels/backends/hexagon/dsp/product/pack.h"

namespace runnel::hexagon {
namespace {

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

namespace {

// The sums of the words of 8 vectors, times -128, in words 0..7.
Vector StartsOf(const Vector* sums) {
  Vector v[4];
  for (int i = 0; i < 4; ++i) {
    const VectorPair pair = Q6_W_vshuff_VVR(sums[2 * i + 1], sums[2 * i], -4);
    v[i] = Q6_Vw_vadd_VwVw(Q6_V_lo_W(pair), Q6_V_hi_W(pair));
  }
  for (int i = 0; i < 2; ++i) {
    const VectorPair pair = Q6_W_vshuff_VVR(v[2 * i + 1], v[2 * i], -8);
    v[i] = Q6_Vw_vadd_VwVw(Q6_V_lo_W(pair), Q6_V_hi_W(pair));
  }
  const VectorPair pair = Q6_W_vshuff_VVR(v[1], v[0], -16);
  Vector sum = Q6_Vw_vadd_VwVw(Q6_V_lo_W(pair), Q6_V_hi_W(pair));
  sum = Q6_Vw_vadd_VwVw(sum, Q6_V_vror_VR(sum, 64));
  sum = Q6_Vw_vadd_VwVw(sum, Q6_V_vror_VR(sum, 32));
  return Q6_Vw_vsub_VwVw(Q6_V_vzero(), Q6_Vw_vasl_VwR(sum, 7));
}

// Controls of a permutation that moves the first 24 of each 32 bytes to the front: bit `offset` of
// a byte's control says that it comes from the byte at its place with that bit changed, in
// ascending order of the offsets.
struct CloseGaps {
  alignas(kVectorBytes) uint8_t control[kVectorBytes] = {};
  constexpr CloseGaps() {
    for (int piece = 0; piece < 4; ++piece) {
      for (int byte = 0; byte < 24; ++byte) {
        int at = 32 * piece + byte;
        const int to = 24 * piece + byte;
        for (int offset = 1; offset < kVectorBytes; offset *= 2) {
          if (((at ^ to) & offset) == 0) continue;
          at ^= offset;
          control[at] |= offset;
        }
      }
    }
  }
};
constexpr CloseGaps kCloseGaps;

// kRows rows, 128 k at a time. What the last vector has too much is overwritten by the next panel.
template <int kRows>
void PackPanel(const int8_t* rows, int stride, int depth, int steps, uint8_t* to, int32_t* start) {
  constexpr int kMixed = kRows == 6 ? 8 : kRows;
  const Vector close_gaps = *reinterpret_cast<const Vector*>(kCloseGaps.control);
  const Vector ones = SplatBytes(1);
  Vector sums[8];
  for (Vector& sum : sums) sum = Q6_V_vzero();
  for (int k = 0; k < 4 * steps; k += kVectorBytes) {
    Vector mixed[kMixed];
    const int8_t* row = rows + k;
    const Predicate kept = Q6_Q_vsetq2_R(Min(depth - k, kVectorBytes));
    for (int m = 0; m < kRows; ++m, row += stride) {
      mixed[m] = depth > k ? Q6_V_vand_QV(kept, Load(row)) : Q6_V_vzero();
      sums[m] = Q6_Vw_vrmpyacc_VwVbVb(sums[m], mixed[m], ones);
    }
    for (int m = kRows; m < kMixed; ++m) mixed[m] = mixed[0];
    MixUnits<4, kMixed>(mixed);
    for (int i = 0; i < kMixed; ++i) {
      Store(to, kRows == 6 ? Q6_V_vrdelta_VV(mixed[i], close_gaps) : mixed[i]);
      to += kRows == 6 ? 96 : kVectorBytes;
    }
  }
  StoreBytes(start, StartsOf(sums), kRows * 4);
}

}  // namespace

void PackByteRows(const int8_t* rows, int stride, int depth, PackedRows& to) {
  for (int first = 0, panel = 0; first < to.rows; first += panel) {
    panel = PanelRows(to.rows - first);
    const int8_t* from = rows + first * stride;
    auto* words = reinterpret_cast<uint8_t*>(to.words + first * to.steps);
    int32_t* start = to.start + first;
    switch (panel) {
      case 6:
        PackPanel<6>(from, stride, depth, to.steps, words, start);
        break;
      case 4:
        PackPanel<4>(from, stride, depth, to.steps, words, start);
        break;
      case 2:
        PackPanel<2>(from, stride, depth, to.steps, words, start);
        break;
      default:
        PackPanel<1>(from, stride, depth, to.steps, words, start);
    }
  }
}

namespace {

// One column after the other.
class ColumnWalk {
 public:
  explicit ColumnWalk(const ByteColumns& columns)
      : columns_(columns), at_(columns.first), begin_(columns.first) {}
  const int8_t* Next() {
    const int8_t* column = at_;
    at_ += columns_.stride;
    if (++done_ == columns_.count) {
      done_ = 0;
      begin_ += columns_.restart;
      at_ = begin_;
    }
    return column;
  }

 private:
  const ByteColumns columns_;
  const int8_t* at_;
  const int8_t* begin_;
  int done_ = 0;
};

// Words of four steps, one row of them a step.
struct FourSteps {
  uint8_t* words = nullptr;
  int row_bytes = 0;
};

// 16 columns; beyond the last, of `depth`, there are zeros.
void InterleaveColumns(ColumnWalk& walk, int rows, int depth, const FourSteps& to, Vector* sums) {
  const Vector ones = SplatBytes(1);
  for (int step = 0; step < 4; ++step) {
    const int8_t* columns[4];
    for (int i = 0; i < 4; ++i) columns[i] = 4 * step + i < depth ? walk.Next() : nullptr;
    auto* words = reinterpret_cast<Vector*>(to.words + step * to.row_bytes);
    for (int lane = 0; lane < rows; lane += kTileLanes, words += 4) {
      Vector column[4];
      for (int i = 0; i < 4; ++i) {
        column[i] = columns[i] != nullptr ? Load(columns[i] + lane) : Q6_V_vzero();
      }
      MixUnits<1, 4>(column);
      Vector* sum = sums + lane / kVectorWords;
      for (int n = 0; n < 4; ++n) {
        words[n] = column[n];
        sum[n] = Q6_Vw_vrmpyacc_VwVbVb(sum[n], column[n], ones);
      }
    }
  }
}

// The four steps of the panels of rows first..end - 1, of `panel` rows each; `bytes` for each.
void PlaceColumns(const FourSteps& from, int first, int end, int panel, int bytes, int steps,
                  uint8_t* to) {
  const int unit = 4 * panel;
  const Predicate first_1 = Q6_Q_vsetq_R(unit), first_2 = Q6_Q_vsetq_R(2 * unit),
                  first_3 = Q6_Q_vsetq_R(3 * unit);
  // Each step's words come to their place by where they are loaded from.
  const int further = from.row_bytes - unit;
  const uint8_t* words = from.words + 4 * first;
  for (int row = first; row < end; row += panel, words += unit, to += unit * steps) {
    Vector value = Q6_V_vmux_QVV(first_3, Load(words + 2 * further), Load(words + 3 * further));
    value = Q6_V_vmux_QVV(first_2, Load(words + further), value);
    value = Q6_V_vmux_QVV(first_1, Load(words), value);
    StoreBytes(to, value, bytes);
  }
}

}  // namespace

void PackByteColumns(const ByteColumns& columns, int depth, uint8_t* spare, PackedRows& to) {
  const int rounded = (to.rows + kTileLanes - 1) / kTileLanes * kTileLanes;
  auto* sums = reinterpret_cast<Vector*>(spare);
  const FourSteps four = {spare + 4 * rounded + kVectorBytes, 4 * rounded};
  to.steps = (depth + 3) / 4;
  for (int i = 0; i < rounded / kVectorWords; ++i) sums[i] = Q6_V_vzero();
  const int sixes = to.rows / 6 * 6;
  ColumnWalk walk(columns);
  for (int step = 0; step < to.steps; step += 4) {
    InterleaveColumns(walk, to.rows, depth - 4 * step, four, sums);
    const int left = to.steps - step;
    for (int first = 0, end = 0; first < to.rows; first = end) {
      const int panel = PanelRows(to.rows - first);
      end = panel == 6 ? sixes : first + panel;
      auto* words = reinterpret_cast<uint8_t*>(to.words + first * to.steps + step * panel);
      // The last steps may not reach into the next panel, which has its first ones.
      const int bytes = 4 * panel * left >= kVectorBytes ? kVectorBytes : 4 * panel * Min(4, left);
      PlaceColumns(four, first, end, panel, bytes, to.steps, words);
    }
  }
  for (int i = 0; i < to.rows; i += kVectorWords) {
    const Vector start = Q6_Vw_vsub_VwVw(Q6_V_vzero(), Q6_Vw_vasl_VwR(sums[i / kVectorWords], 7));
    StoreBytes(to.start + i, start, 4 * (to.rows - i));
  }
}

}  // namespace runnel::hexagon
