// Advanced SIMD as every arm64 processor has it (Raspberry Pi 3 and 4). 16 products of a row and a
// column become eight 16-bit sums of two (2 * 127 * 127 < 2^15), which are added in pairs to four
// 32-bit sums.

#include "kernels/backends/cpu/int8/rows/neon_row.h"

namespace runnel::cpu {
namespace {

constexpr int kRows = 4;
constexpr int kColumns = 4;
constexpr int kGroup = 16;

// kLowest: a and b may both be -128, so that two products do not fit 16 bits.
template <bool kLowest>
void Tile(const Int8Tile& tile) {
  const RowPointers<kRows> rows(tile);
  int32x4_t sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) sums[r][j] = vdupq_n_s32(0);
  }
  for (int s = 0; s < tile.segment_count; ++s) {
    const Int8Segment& segment = tile.segments[s];
    const int8_t* b = tile.b + segment.b_offset;
    int64_t at = segment.a_offset;
    for (int64_t step = 0; step < segment.steps; ++step, at += tile.a_step) {
      int8x16_t a[kRows];
      for (int r = 0; r < kRows; ++r) a[r] = vld1q_s8(rows.p[r] + at);
      for (int j = 0; j < kColumns; ++j, b += kGroup) {
        const int8x16_t column = vld1q_s8(b);
        // In this order four chains are under way at once, on processors that keep it.
        int16x8_t twos[kRows];
        for (int r = 0; r < kRows; ++r) twos[r] = vmull_s8(vget_low_s8(a[r]), vget_low_s8(column));
        if constexpr (kLowest) {
          for (int r = 0; r < kRows; ++r) sums[r][j] = vpadalq_s16(sums[r][j], twos[r]);
          for (int r = 0; r < kRows; ++r) twos[r] = vmull_high_s8(a[r], column);
        } else {
          for (int r = 0; r < kRows; ++r) twos[r] = vmlal_high_s8(twos[r], a[r], column);
        }
        for (int r = 0; r < kRows; ++r) sums[r][j] = vpadalq_s16(sums[r][j], twos[r]);
      }
    }
  }
  uint32x4_t largest = vdupq_n_u32(0);
  for (int r = 0; r < tile.rows; ++r) {
    int32x4_t row[1] = {
        vpaddq_s32(vpaddq_s32(sums[r][0], sums[r][1]), vpaddq_s32(sums[r][2], sums[r][3]))};
    largest = FinishTileRow(tile, r, row, largest);
  }
  RaiseMaxLanes(tile, largest);
}

static_assert(kRows == kColumns);

}  // namespace

constinit const Int8Kernels kNeonInt8Kernels =
    NeonRow<kRows, kGroup, TurnBySixteen, false>("neon", Isa::kNeon, 256, Tile<false>);
constinit const Int8Kernels kNeonLowestInt8Kernels =
    NeonRow<kRows, kGroup, TurnBySixteen, true>("neon_lowest", Isa::kNeon, 256, Tile<true>);

}  // namespace runnel::cpu
