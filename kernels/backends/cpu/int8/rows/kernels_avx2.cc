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

// Both factors may be -128: they are multiplied as int16, those of even and of odd place apart.
struct WideDot {
  static __m256i Even(__m256i bytes) { return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8); }
  static __m256i Odd(__m256i bytes) { return _mm256_srai_epi16(bytes, 8); }
  struct Row {
    explicit Row(__m256i four) : even(Even(four)), odd(Odd(four)) {}
    __m256i even, odd;
  };
  static __m256i Add(__m256i sums, const Row& row, __m256i column) {
    const __m256i pairs = _mm256_madd_epi16(row.even, Even(column));
    return _mm256_add_epi32(_mm256_add_epi32(sums, pairs), _mm256_madd_epi16(row.odd, Odd(column)));
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
using NarrowPacking = PackingLoops<kRows, kAvx2Group, 128>;

}  // namespace

constexpr Int8Kernels kAvx2Int8Kernels = {
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

// Of codes, without packing: what multiplies is the rows' own.
static constexpr Int8Kernels KernelsOfCodes(const char* name) {
  Int8Kernels kernels = kAvx2Int8Kernels;
  kernels.name = name;
  kernels.takes_lowest = true;
  return kernels;
}

static constexpr Int8Kernels WidenedKernels() {
  Int8Kernels kernels = KernelsOfCodes("avx2_lowest");
  kernels.tile = Tile<WideDot>;
  return kernels;
}

static constexpr Int8Kernels NarrowKernels() {
  Int8Kernels kernels = KernelsOfCodes("avx2_narrow");
  kernels.a_bias = 128;
  kernels.tile = Tile<NarrowDot>;
  kernels.copy_a = NarrowPacking::CopyA;
  kernels.pack_a = NarrowPacking::PackA;
  kernels.pack_b_columns = NarrowPacking::PackBColumns;
  kernels.pack_b_rows = NarrowPacking::PackBRows;
  kernels.column_start = NarrowPacking::ColumnStart;
  return kernels;
}

constinit const Int8Kernels kAvx2LowestInt8Kernels = WidenedKernels();
extern const Int8Kernels kAvx2NarrowInt8Kernels;
constinit const Int8Kernels kAvx2NarrowInt8Kernels = NarrowKernels();

}  // namespace runnel::cpu

#endif  // defined(__x86_64__)
