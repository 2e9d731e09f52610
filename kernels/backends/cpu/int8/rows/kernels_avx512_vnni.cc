// AVX-512 VNNI: vpdpbusd adds four products of an unsigned (A, biased by 128) and a signed byte (B)
// to each of sixteen int32.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "kernels/backends/cpu/int8/rows/avx512_codes.h"
#include "kernels/backends/cpu/int8/rows/avx512_depthwise.h"
#include "kernels/backends/cpu/int8/rows/avx512_elements.h"
#include "kernels/backends/cpu/int8/rows/avx512_packing.h"

namespace runnel::cpu {
namespace {

constexpr uint8_t kBias = 128;

RUNNEL_INLINE __m512i BroadcastFour(const uint8_t* a) {
  int32_t four;
  std::memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}

// How the rows of A lie. kPacked: row r is at a[0] + 4 r, a step is 24 bytes. kRaw: without the
// bias, which is added on the way.
enum class Rows { kBiased, kRaw, kPacked };

// What is fetched on the way, line by line; the same line again where there is nothing.
struct Ahead {
  explicit Ahead(const Int8Tile& tile)
      : line(tile.ahead == nullptr ? tile.b : tile.ahead), step(tile.ahead == nullptr ? 0 : 64) {}
  const int8_t* line;
  int64_t step;
};

template <int kRows, int kVectors, Rows kLie>
RUNNEL_INLINE void AddSegment(const Int8Tile& tile, const Int8Segment& segment, Ahead& ahead,
                              __m512i (&sums)[kRows][kVectors]) {
  constexpr bool kPacked = kLie == Rows::kPacked;
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(kBias));
  constexpr int64_t kStep = kPacked ? kAvx512Rows * kAvx512Group : kAvx512Group;
  const uint8_t* a[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    a[r] = kPacked ? tile.a[0] + segment.a_offset + 4 * r : tile.a[r] + segment.a_offset;
  }
  const int8_t* b = tile.b + segment.b_offset;
  const int64_t end = segment.steps * kStep;
#pragma GCC unroll 2
  for (int64_t offset = 0; offset < end; offset += kStep, b += 64 * kVectors) {
    __m512i column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = _mm512_loadu_si512(b + 64 * v);
    if constexpr (kRows == kAvx512Rows && kVectors == 4 && !kPacked) {
      _mm_prefetch(ahead.line, _MM_HINT_T1);
      ahead.line += ahead.step;
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      __m512i row = BroadcastFour(a[r] + offset);
      if constexpr (kLie == Rows::kRaw) row = _mm512_xor_si512(row, bias);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], row, column[v]);
      }
    }
  }
}

template <int kRows, int kVectors>
RUNNEL_INLINE void StoreTile(const Int8Tile& tile, __m512i (&sums)[kRows][kVectors]) {
  const __mmask16 tail = static_cast<__mmask16>(FirstBytes(tile.columns - 16 * (kVectors - 1)));
  __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 mask = v == kVectors - 1 ? tail : __mmask16{0xFFFF};
      __m512i sum = sums[r][v];
      if (tile.addend != nullptr) {
        sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(mask, tile.addend[r] + 16 * v));
      }
      _mm512_mask_storeu_epi32(tile.c[r] + 16 * v, mask, sum);
      largest = _mm512_mask_max_epu32(largest, mask, largest, _mm512_abs_epi32(sum));
    }
  }
  if (tile.max_lanes != nullptr) {
    const __m512i so_far = _mm512_loadu_si512(tile.max_lanes);
    _mm512_storeu_si512(tile.max_lanes, _mm512_max_epu32(so_far, largest));
  }
}

template <int kRows, int kVectors, Rows kLie>
void RunTile(const Int8Tile& tile) {
  __m512i sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __m512i start =
        tile.start == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(tile.start + 16 * v);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) sums[r][v] = start;
  }
  Ahead ahead(tile);
  for (int s = 0; s < tile.segment_count; ++s) {
    AddSegment<kRows, kVectors, kLie>(tile, tile.segments[s], ahead, sums);
  }
  if (tile.coding != nullptr) {
    Avx512CodeTile<kRows, kVectors>(tile, sums);
  } else if (tile.rounding == nullptr) {
    StoreTile<kRows, kVectors>(tile, sums);
  } else if (tile.rounding->half_away) {
    Avx512RoundTile<false, kRows, kVectors>(tile, sums);
  } else {
    Avx512RoundTile<true, kRows, kVectors>(tile, sums);
  }
}

using TileFunction = void (*)(const Int8Tile&);

template <int kRows, Rows kLie>
TileFunction Pick(int vectors) {
  static constexpr TileFunction kTable[4] = {RunTile<kRows, 1, kLie>, RunTile<kRows, 2, kLie>,
                                             RunTile<kRows, 3, kLie>, RunTile<kRows, 4, kLie>};
  return kTable[vectors - 1];
}

template <Rows kLie>
TileFunction PickRows(const Int8Tile& tile) {
  static constexpr TileFunction (*kPick[kAvx512Rows])(int) = {
      Pick<1, kLie>, Pick<2, kLie>, Pick<3, kLie>, Pick<4, kLie>, Pick<5, kLie>, Pick<6, kLie>};
  return kPick[tile.rows - 1]((tile.columns + kAvx512Unit - 1) / kAvx512Unit);
}

void Tile(const Int8Tile& tile) {
  const bool packed = tile.a_step != kAvx512Group;
  const TileFunction run = packed          ? PickRows<Rows::kPacked>(tile)
                           : tile.a_is_raw ? PickRows<Rows::kRaw>(tile)
                                           : PickRows<Rows::kBiased>(tile);
  run(tile);
}

template <int kVectors>
void AddColumnStart(const int8_t* panel, const Int8Segment* segments, int segment_count,
                    int32_t* start) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sums[v] = _mm512_setzero_si512();
  for (int s = 0; s < segment_count; ++s) {
    const int8_t* b = panel + segments[s].b_offset;
    for (int64_t step = 0; step < segments[s].steps; ++step, b += 64 * kVectors) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = _mm512_dpbusd_epi32(sums[v], ones, _mm512_loadu_si512(b + 64 * v));
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __m512i sum = _mm512_slli_epi32(sums[v], 7);
    const __m512i before = _mm512_loadu_si512(start + 16 * v);
    _mm512_storeu_si512(start + 16 * v, _mm512_sub_epi32(before, sum));
  }
}

void ColumnStart(const int8_t* panel, const Int8Segment* segments, int segment_count, int width,
                 int32_t* start) {
  constexpr void (*kTable[4])(const int8_t*, const Int8Segment*, int, int32_t*) = {
      AddColumnStart<1>, AddColumnStart<2>, AddColumnStart<3>, AddColumnStart<4>};
  kTable[width / kAvx512Unit - 1](panel, segments, segment_count, start);
}

}  // namespace

namespace {

constexpr Int8Kernels MakeRow(const char* name, bool adds_bias) {
  return {
      .name = name,
      .isa = Isa::kAvx512Vnni,
      .tile_rows = kAvx512Rows,
      .panel_columns = kAvx512Columns,
      .column_unit = kAvx512Unit,
      .k_group = kAvx512Group,
      .a_bias = kBias,
      .adds_bias = adds_bias,
      .rounds_tiles = true,
      .codes_tiles = true,
      .takes_lowest = true,
      .panel_steps = 1152,
      .tile = Tile,
      .copy_a = Avx512CopyA<kBias>,
      .pack_a = Avx512PackA<kBias>,
      .pack_b_columns = Avx512PackBColumns,
      .pack_b_rows = Avx512PackBRows,
      .column_start = ColumnStart,
      .rescale_pseudo_stochastic = Avx512RescalePseudoStochastic,
      .rescale_half_away = Avx512RescaleHalfAway,
      .max_abs = Avx512MaxAbs,
      .subtract_saturating = Avx512SubtractSaturating,
      .depthwise_row = Avx512DepthwiseRow,
      .depthwise_weight_row = Avx512DepthwiseWeightRow,
  };
}

}  // namespace

constinit const Int8Kernels kAvx512VnniInt8Kernels = MakeRow("avx512_vnni", false);
constinit const Int8Kernels kAvx512VnniRawInt8Kernels = MakeRow("avx512_vnni_raw", true);

}  // namespace runnel::cpu

#endif  // defined(__x86_64__)
