// AVX-VNNI: vpdpbusd on 256 bits, of client processors without AVX-512. A is unsigned, biased by
// 128.

#if defined(__x86_64__)

#include "kernels/backends/cpu/int8/rows/avx2_loops.h"
#include "kernels/backends/cpu/int8/rows/packing_loops.h"

namespace runnel::cpu {
namespace {

constexpr int kRows = 6;

struct Dot {
  using Row = __m256i;
  static __m256i Add(__m256i sums, __m256i row, __m256i column) {
    return _mm256_dpbusd_avx_epi32(sums, row, column);
  }
};

void Tile(const Int8Tile& tile) {
  static constexpr void (*kTable[kRows])(const Int8Tile&) = {
      Avx2RunTile<Dot, 1>, Avx2RunTile<Dot, 2>, Avx2RunTile<Dot, 3>,
      Avx2RunTile<Dot, 4>, Avx2RunTile<Dot, 5>, Avx2RunTile<Dot, 6>};
  kTable[tile.rows - 1](tile);
}

using Packing = PackingLoops<kRows, kAvx2Group, 128>;

}  // namespace

const Int8Kernels kAvxVnniInt8Kernels = {
    .name = "avx_vnni",
    .isa = Isa::kAvxVnni,
    .tile_rows = kRows,
    .panel_columns = kAvx2Columns,
    .column_unit = kAvx2Columns,
    .k_group = kAvx2Group,
    .a_bias = 128,
    .takes_lowest = true,
    .panel_steps = 576,
    .tile = Tile,
    .copy_a = Packing::CopyA,
    .pack_a = Packing::PackA,
    .pack_b_columns = Packing::PackBColumns,
    .pack_b_rows = Packing::PackBRows,
    .column_start = Packing::ColumnStart,
    .rescale_pseudo_stochastic = Avx2Rescale<true>,
    .rescale_half_away = Avx2Rescale<false>,
    .max_abs = Avx2MaxAbs,
    .subtract_saturating = Avx2SubtractSaturating,
    .depthwise_row = Avx2DepthwiseRow,
    .depthwise_weight_row = Avx2DepthwiseWeightRow,
};

}  // namespace runnel::cpu

#endif  // defined(__x86_64__)
