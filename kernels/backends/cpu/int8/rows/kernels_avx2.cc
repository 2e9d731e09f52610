// AVX2. vpmaddubsw wants one unsigned factor: |a|, with the sign of a moved to b. 2 * 127 * 127
// fits int16, so nothing saturates.

#if defined(__x86_64__)

#include "kernels/backends/cpu/int8/rows/avx2_loops.h"
#include "kernels/backends/cpu/int8/rows/packing_loops.h"

namespace runnel::cpu {
namespace {

constexpr int kRows = 4;

struct Dot {
  struct Row {
    explicit Row(__m256i four) : value(four), magnitude(_mm256_abs_epi8(four)) {}
    __m256i value, magnitude;
  };
  static __m256i Add(__m256i sums, const Row& row, __m256i column) {
    const __m256i pairs = _mm256_maddubs_epi16(row.magnitude, _mm256_sign_epi8(column, row.value));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

// A is unsigned, biased by 128, and b may be -128: the seven lower bits of a and the highest one
// apart, so that two products of either fit int16.
struct LowestDot {
  struct Row {
    explicit Row(__m256i four)
        : low(_mm256_and_si256(four, _mm256_set1_epi8(0x7f))),
          high(_mm256_andnot_si256(_mm256_set1_epi8(0x7f), four)) {}
    __m256i low, high;
  };
  static __m256i Add(__m256i sums, const Row& row, __m256i column) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i low = _mm256_madd_epi16(_mm256_maddubs_epi16(row.low, column), ones);
    const __m256i high = _mm256_madd_epi16(_mm256_maddubs_epi16(row.high, column), ones);
    return _mm256_add_epi32(sums, _mm256_add_epi32(low, high));
  }
};

// A is unsigned, biased by 128, and |b| <= 64: 2 * 255 * 64 fits int16.
struct NarrowDot {
  struct Row {
    explicit Row(__m256i four) : value(four) {}
    __m256i value;
  };
  static __m256i Add(__m256i sums, const Row& row, __m256i column) {
    const __m256i pairs = _mm256_maddubs_epi16(row.value, column);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

template <typename AnyDot>
void Tile(const Int8Tile& tile) {
  static constexpr void (*kTable[kRows])(const Int8Tile&) = {
      Avx2RunTile<AnyDot, 1>, Avx2RunTile<AnyDot, 2>, Avx2RunTile<AnyDot, 3>,
      Avx2RunTile<AnyDot, 4>};
  kTable[tile.rows - 1](tile);
}

using Packing = PackingLoops<kRows, kAvx2Group, 0>;
using LowestPacking = PackingLoops<kRows, kAvx2Group, 128>;

}  // namespace

const Int8Kernels kAvx2Int8Kernels = {
    .name = "avx2",
    .isa = Isa::kAvx2,
    .tile_rows = kRows,
    .panel_columns = kAvx2Columns,
    .column_unit = kAvx2Columns,
    .k_group = kAvx2Group,
    .a_bias = 0,
    .panel_steps = 576,
    .tile = Tile<Dot>,
    .copy_a = Packing::CopyA,
    .pack_a = Packing::PackA,
    .pack_b_columns = Packing::PackBColumns,
    .pack_b_rows = Packing::PackBRows,
    .column_start = nullptr,
    .rescale_pseudo_stochastic = Avx2Rescale<true>,
    .rescale_half_away = Avx2Rescale<false>,
    .max_abs = Avx2MaxAbs,
    .subtract_saturating = Avx2SubtractSaturating,
    .depthwise_row = Avx2DepthwiseRow,
    .depthwise_weight_row = Avx2DepthwiseWeightRow,
};

template <typename AnyDot>
static constexpr Int8Kernels KernelsOfCodes(const char* name) {
  return {
      .name = name,
      .isa = Isa::kAvx2,
      .tile_rows = kRows,
      .panel_columns = kAvx2Columns,
      .column_unit = kAvx2Columns,
      .k_group = kAvx2Group,
      .a_bias = 128,
      .takes_lowest = true,
      .panel_steps = 576,
      .tile = Tile<AnyDot>,
      .copy_a = LowestPacking::CopyA,
      .pack_a = LowestPacking::PackA,
      .pack_b_columns = LowestPacking::PackBColumns,
      .pack_b_rows = LowestPacking::PackBRows,
      .column_start = LowestPacking::ColumnStart,
      .rescale_pseudo_stochastic = Avx2Rescale<true>,
      .rescale_half_away = Avx2Rescale<false>,
      .max_abs = Avx2MaxAbs,
      .subtract_saturating = Avx2SubtractSaturating,
      .depthwise_row = Avx2DepthwiseRow,
      .depthwise_weight_row = Avx2DepthwiseWeightRow,
  };
}

constinit const Int8Kernels kAvx2LowestInt8Kernels = KernelsOfCodes<LowestDot>("avx2_lowest");
extern const Int8Kernels kAvx2NarrowInt8Kernels;
constinit const Int8Kernels kAvx2NarrowInt8Kernels = KernelsOfCodes<NarrowDot>("avx2_narrow");

}  // namespace runnel::cpu

#endif  // defined(__x86_64__)
