// Advanced SIMD with SMMLA (arm64 processors since 2021): two rows times two columns of eight
// values in one instruction.

#include "kernels/backends/cpu/int8/rows/neon_row.h"

namespace runnel::cpu {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 8;
constexpr int kGroup = 8;
constexpr int64_t kPackedStep = kRows * kGroup;
constexpr int64_t kPanelStep = kColumns * kGroup;

// [pair of rows][pair of columns]: (row, column), (row, column + 1), (row + 1, ...).
using Sums = int32x4_t[kRows / 2][kColumns / 2];

inline void AddStep(const int8x16_t (&a)[kRows / 2], const int8_t* b, Sums& sums) {
  for (int j = 0; j < kColumns / 2; ++j) {
    const int8x16_t columns = vld1q_s8(b + 16 * j);
    for (int r = 0; r < kRows / 2; ++r) sums[r][j] = vmmlaq_s32(sums[r][j], a[r], columns);
  }
}

// Rows that lie apart.
void AddPixels(const RowPointers<kRows>& rows, const Int8Segment& segment, const int8_t* b,
               Sums& sums) {
  int64_t at = segment.a_offset;
  for (int64_t step = 0; step < segment.steps; ++step, at += kGroup, b += kPanelStep) {
    int8x16_t a[kRows / 2];
    for (int r = 0; r < kRows / 2; ++r) {
      a[r] = vcombine_s8(vld1_s8(rows.p[2 * r] + at), vld1_s8(rows.p[2 * r + 1] + at));
    }
    AddStep(a, b, sums);
  }
}

// Rows that lie side by side.
void AddPacked(const int8_t* a, int64_t steps, const int8_t* b, Sums& sums) {
  for (int64_t step = 0; step < steps; ++step, a += kPackedStep, b += kPanelStep) {
    int8x16_t pairs[kRows / 2];
    for (int r = 0; r < kRows / 2; ++r) pairs[r] = vld1q_s8(a + 16 * r);
    AddStep(pairs, b, sums);
  }
}

inline int32x4_t LowHalves(int32x4_t a, int32x4_t b) {
  return vcombine_s32(vget_low_s32(a), vget_low_s32(b));
}
inline int32x4_t HighHalves(int32x4_t a, int32x4_t b) {
  return vcombine_s32(vget_high_s32(a), vget_high_s32(b));
}

void Tile(const Int8Tile& tile) {
  const RowPointers<kRows> rows(tile);
  Sums sums;
  for (auto& pair : sums) {
    for (int32x4_t& sum : pair) sum = vdupq_n_s32(0);
  }
  for (int s = 0; s < tile.segment_count; ++s) {
    const Int8Segment& segment = tile.segments[s];
    const int8_t* b = tile.b + segment.b_offset;
    if (tile.a_step == kPackedStep) {
      AddPacked(rows.p[0] + segment.a_offset, segment.steps, b, sums);
    } else {
      AddPixels(rows, segment, b, sums);
    }
  }
  uint32x4_t largest = vdupq_n_u32(0);
  for (int r = 0; r < tile.rows; ++r) {
    const int32x4_t* pair = sums[r / 2];
    int32x4_t row[2];
    for (int q = 0; q < 2; ++q) {
      row[q] = r % 2 == 0 ? LowHalves(pair[2 * q], pair[2 * q + 1])
                          : HighHalves(pair[2 * q], pair[2 * q + 1]);
    }
    largest = FinishTileRow(tile, r, row, largest);
  }
  RaiseMaxLanes(tile, largest);
}

static_assert(kRows == kColumns);

}  // namespace

constinit const Int8Kernels kNeonI8mmInt8Kernels =
    NeonRow<kRows, kGroup, TurnByEight, false>("i8mm", Isa::kNeonI8mm, 256, Tile);
constinit const Int8Kernels kNeonI8mmLowestInt8Kernels =
    NeonRow<kRows, kGroup, TurnByEight, true>("i8mm_lowest", Isa::kNeonI8mm, 256, Tile);

}  // namespace runnel::cpu
