// The row that every machine can run and that says what the others compute.

#include "kernels/backends/cpu/int8/rows/element_loops.h"
#include "kernels/backends/cpu/int8/rows/packing_loops.h"

namespace runnel::cpu {
namespace {

constexpr int kRows = 4;
constexpr int kColumns = 16;
constexpr int kGroup = 4;

// One row of a tile.
void AddRow(const Int8Tile& tile, const uint8_t* a, int width, uint32_t* sums) {
  for (int s = 0; s < tile.segment_count; ++s) {
    const Int8Segment& segment = tile.segments[s];
    const auto* row = reinterpret_cast<const int8_t*>(a) + segment.a_offset;
    const int8_t* b = tile.b + segment.b_offset;
    for (int64_t step = 0; step < segment.steps; ++step) {
      for (int j = 0; j < width; ++j) {
        int32_t sum = 0;
        for (int g = 0; g < kGroup; ++g) sum += row[g] * b[j * kGroup + g];
        sums[j] += static_cast<uint32_t>(sum);
      }
      row += tile.a_step;
      b += width * kGroup;
    }
  }
}

void Tile(const Int8Tile& tile) {
  const int width = kColumns;  // the only multiple of the column unit
  uint32_t largest = 0;
  for (int r = 0; r < tile.rows; ++r) {
    uint32_t sums[kColumns] = {};
    AddRow(tile, tile.a[r], width, sums);
    for (int j = 0; j < tile.columns; ++j) {
      if (tile.start != nullptr) sums[j] += static_cast<uint32_t>(tile.start[j]);
      if (tile.addend != nullptr) sums[j] += static_cast<uint32_t>(tile.addend[r][j]);
      tile.c[r][j] = static_cast<int32_t>(sums[j]);
      const uint32_t magnitude = Magnitude(tile.c[r][j]);
      largest = largest > magnitude ? largest : magnitude;
    }
  }
  if (tile.max_lanes != nullptr && largest > tile.max_lanes[0]) tile.max_lanes[0] = largest;
}

void RescalePseudoStochastic(const int32_t* acc, int64_t n, int shift, bool relu,
                             const int8_t* mask, int8_t* out) {
  RescalePseudoStochasticFrom(0, acc, n, shift, relu, mask, out);
}

void RescaleHalfAway(const int32_t* acc, int64_t n, int shift, bool relu, const int8_t* mask,
                     int8_t* out) {
  RescaleHalfAwayFrom(0, acc, n, shift, relu, mask, out);
}

uint32_t MaxAbs(const int32_t* acc, int64_t n) { return MaxAbsFrom(0, acc, n, 0); }

void SubtractSaturating(const int8_t* w, const int8_t* g, int64_t n, int8_t* out) {
  SubtractSaturatingFrom(0, w, g, n, out);
}

using Packing = PackingLoops<kRows, kGroup, 0>;

}  // namespace

const Int8Kernels kPortableInt8Kernels = {
    .name = "portable",
    .tile_rows = kRows,
    .panel_columns = kColumns,
    .column_unit = kColumns,
    .k_group = kGroup,
    .a_bias = 0,
    .takes_lowest = true,
    .panel_steps = 256,
    .tile = Tile,
    .copy_a = Packing::CopyA,
    .pack_a = Packing::PackA,
    .pack_b_columns = Packing::PackBColumns,
    .pack_b_rows = Packing::PackBRows,
    .column_start = Packing::ColumnStart,
    .rescale_pseudo_stochastic = RescalePseudoStochastic,
    .rescale_half_away = RescaleHalfAway,
    .max_abs = MaxAbs,
    .subtract_saturating = SubtractSaturating,
    .depthwise_row = DepthwiseRowLoop,
    .depthwise_weight_row = DepthwiseWeightRowLoop,
};

}  // namespace runnel::cpu
