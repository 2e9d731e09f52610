// AVX-512 BW without VNNI. vpmaddubsw wants one unsigned factor: |a|, with the sign of a moved to
// b. 2 * 127 * 127 fits int16, so nothing saturates.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "kernels/backends/cpu/int8/rows/avx512_depthwise.h"
#include "kernels/backends/cpu/int8/rows/avx512_elements.h"
#include "kernels/backends/cpu/int8/rows/avx512_packing.h"
#include "kernels/backends/cpu/int8/rows/packing_loops.h"

namespace runnel::cpu {
namespace {

constexpr int kRows = kAvx512Rows;

RUNNEL_INLINE __m512i BroadcastFour(const uint8_t* a) {
  int32_t four;
  std::memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}

// Adds the products of a row of A and columns.
struct Dot {
  explicit Dot(__m512i row) : negative(_mm512_movepi8_mask(row)), magnitude(_mm512_abs_epi8(row)) {}
  __m512i Add(__m512i sums, __m512i column) const {
    const __m512i factor = _mm512_mask_sub_epi8(column, negative, _mm512_setzero_si512(), column);
    const __m512i pairs = _mm512_maddubs_epi16(magnitude, factor);
    return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  __mmask64 negative;
  __m512i magnitude;
};
// A is unsigned, biased by 128, and b may be -128: the seven lower bits of a and the highest one
// apart, so that two products of either fit int16.
struct LowestDot {
  explicit LowestDot(__m512i row)
      : low(_mm512_and_si512(row, _mm512_set1_epi8(0x7f))),
        high(_mm512_andnot_si512(_mm512_set1_epi8(0x7f), row)) {}
  __m512i Add(__m512i sums, __m512i column) const {
    const __m512i ones = _mm512_set1_epi16(1);
    const __m512i lower = _mm512_madd_epi16(_mm512_maddubs_epi16(low, column), ones);
    const __m512i upper = _mm512_madd_epi16(_mm512_maddubs_epi16(high, column), ones);
    return _mm512_add_epi32(sums, _mm512_add_epi32(lower, upper));
  }
  __m512i low, high;
};

// A is unsigned, biased by 128, and |b| <= 64: 2 * 255 * 64 fits int16.
struct NarrowDot {
  explicit NarrowDot(__m512i row) : value(row) {}
  __m512i Add(__m512i sums, __m512i column) const {
    const __m512i pairs = _mm512_maddubs_epi16(value, column);
    return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  __m512i value;
};

// kRowCount rows, kVectors vectors of columns from the given one on.
template <typename AnyDot, int kRowCount, int kVectors>
void RunPart(const Int8Tile& tile, int width, int first) {
  const __m512i zero = _mm512_setzero_si512();
  __m512i sums[kRowCount][kVectors];
  for (auto& row : sums) {
    for (int v = 0; v < kVectors; ++v) row[v] = zero;
  }
  for (int s = 0; s < tile.segment_count; ++s) {
    const Int8Segment& segment = tile.segments[s];
    const int8_t* b = tile.b + segment.b_offset + 4 * first;
    int64_t offset = segment.a_offset;
    for (int64_t step = 0; step < segment.steps; ++step, b += 4 * width, offset += tile.a_step) {
      __m512i column[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) column[v] = _mm512_loadu_si512(b + 64 * v);
#pragma GCC unroll 6
      for (int r = 0; r < kRowCount; ++r) {
        const AnyDot row(BroadcastFour(tile.a[r] + offset));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[r][v] = row.Add(sums[r][v], column[v]);
      }
    }
  }
  __m512i largest = zero;
  for (int v = 0; v < kVectors; ++v) {
    const int column = first + 16 * v;
    const auto mask = static_cast<__mmask16>(FirstBytes(tile.columns - column));
    for (int r = 0; r < kRowCount; ++r) {
      __m512i sum = sums[r][v];
      if (tile.start != nullptr) {
        sum = _mm512_add_epi32(sum, _mm512_loadu_si512(tile.start + column));
      }
      if (tile.addend != nullptr) {
        sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(mask, tile.addend[r] + column));
      }
      _mm512_mask_storeu_epi32(tile.c[r] + column, mask, sum);
      largest = _mm512_mask_max_epu32(largest, mask, largest, _mm512_abs_epi32(sum));
    }
  }
  if (tile.max_lanes == nullptr) return;
  const __m512i so_far = _mm512_loadu_si512(tile.max_lanes);
  _mm512_storeu_si512(tile.max_lanes, _mm512_max_epu32(so_far, largest));
}

template <typename AnyDot, int kRowCount>
void RunRows(const Int8Tile& tile) {
  const int width = (tile.columns + kAvx512Unit - 1) / kAvx512Unit * kAvx512Unit;
  int first = 0;
  for (; first + 32 <= width; first += 32) RunPart<AnyDot, kRowCount, 2>(tile, width, first);
  if (first < width) RunPart<AnyDot, kRowCount, 1>(tile, width, first);
}

template <typename AnyDot>
void Tile(const Int8Tile& tile) {
  static constexpr void (*kTable[kRows])(const Int8Tile&) = {
      RunRows<AnyDot, 1>, RunRows<AnyDot, 2>, RunRows<AnyDot, 3>,
      RunRows<AnyDot, 4>, RunRows<AnyDot, 5>, RunRows<AnyDot, 6>};
  kTable[tile.rows - 1](tile);
}

}  // namespace

const Int8Kernels kAvx512Int8Kernels = {
    .name = "avx512",
    .isa = Isa::kAvx512,
    .tile_rows = kRows,
    .panel_columns = kAvx512Columns,
    .column_unit = kAvx512Unit,
    .k_group = kAvx512Group,
    .a_bias = 0,
    .panel_steps = 1152,
    .tile = Tile<Dot>,
    .copy_a = Avx512CopyA<0>,
    .pack_a = Avx512PackA<0>,
    .pack_b_columns = Avx512PackBColumns,
    .pack_b_rows = Avx512PackBRows,
    .column_start = nullptr,
    .rescale_pseudo_stochastic = Avx512RescalePseudoStochastic,
    .rescale_half_away = Avx512RescaleHalfAway,
    .max_abs = Avx512MaxAbs,
    .subtract_saturating = Avx512SubtractSaturating,
    .depthwise_row = Avx512DepthwiseRow,
    .depthwise_weight_row = Avx512DepthwiseWeightRow,
};

template <typename AnyDot>
static constexpr Int8Kernels KernelsOfCodes(const char* name) {
  return {
      .name = name,
      .isa = Isa::kAvx512,
      .tile_rows = kRows,
      .panel_columns = kAvx512Columns,
      .column_unit = kAvx512Unit,
      .k_group = kAvx512Group,
      .a_bias = 128,
      .takes_lowest = true,
      .panel_steps = 1152,
      .tile = Tile<AnyDot>,
      .copy_a = Avx512CopyA<128>,
      .pack_a = Avx512PackA<128>,
      .pack_b_columns = Avx512PackBColumns,
      .pack_b_rows = Avx512PackBRows,
      .column_start = PackingLoops<kRows, kAvx512Group, 128>::ColumnStart,
      .rescale_pseudo_stochastic = Avx512RescalePseudoStochastic,
      .rescale_half_away = Avx512RescaleHalfAway,
      .max_abs = Avx512MaxAbs,
      .subtract_saturating = Avx512SubtractSaturating,
      .depthwise_row = Avx512DepthwiseRow,
      .depthwise_weight_row = Avx512DepthwiseWeightRow,
  };
}

constinit const Int8Kernels kAvx512LowestInt8Kernels = KernelsOfCodes<LowestDot>("avx512_lowest");
extern const Int8Kernels kAvx512NarrowInt8Kernels;
constinit const Int8Kernels kAvx512NarrowInt8Kernels = KernelsOfCodes<NarrowDot>("avx512_narrow");

}  // namespace runnel::cpu

#endif  // defined(__x86_64__)
