#pragma once

// Packs panels of A and tiles of B for product.h. What is packed may be written up to kSlackBytes
// past its end.

#include "kernels/backends/hexagon/dsp/images.h"
#include "kernels/backends/hexagon/dsp/product/product.h"
#include "kernels/backends/hexagon/dsp/shuffles.h"

namespace runnel::hexagon {

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// B[k] is a row of lanes: k reads as reads[k] says, k < 4 * steps (where A is 0, any will do).
void PackLaneRows(LaneReader& reader, const LaneRead* reads, int steps, int lanes, Vector* b);

// B's lanes are rows of 128 k, 32 steps: load(i, rows) gives lanes i..i + 7, also those that make
// the last 32 whole. Writes steps 0..31.
template <typename Load8>
RUNNEL_INLINE void PackDepthRows(const Load8& load, int lanes, Vector* b) {
  const Vector sign = SplatBytes(128);
  const auto pack = [&](auto vectors) {
    for (int first = 0; first < lanes; first += kVectorWords, ++b) {
      TransposeWords(
          [&](int group, Vector* rows) {
            load(first + 8 * group, rows);
            for (int i = 0; i < 8; ++i) rows[i] = Q6_V_vxor_VV(rows[i], sign);
          },
          [&](int step, Vector words) { b[step * vectors.value] = words; });
    }
  };
  switch (TileVectors(lanes)) {
    case 4:
      return pack(Constant<4>());
    case 2:
      return pack(Constant<2>());
    default:
      return pack(Constant<1>());
  }
}

// Packs A, whose row m is the bytes at rows + m * stride, `depth` of them; to.steps may be more
// than they need.
void PackByteRows(const int8_t* rows, int stride, int depth, PackedRows& to);

// Columns of bytes: `count` of them are `stride` apart, and so are the next ones, which begin
// `restart` bytes further on, and so forth.
struct ByteColumns {
  const int8_t* first = nullptr;
  int count = 0;
  int stride = 0;
  int restart = 0;
};
// Packs A, whose column k is the k-th of these, to.rows bytes. `spare`: ColumnSpare(to.rows) bytes.
void PackByteColumns(const ByteColumns& columns, int depth, uint8_t* spare, PackedRows& to);
inline uint32_t ColumnSpare(int rows) {
  return (4 + 1) * 4 * ((rows + kTileLanes - 1) / kTileLanes * kTileLanes) + 2 * kVectorBytes;
}

}  // namespace runnel::hexagon
