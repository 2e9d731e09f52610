// Advanced SIMD with SDOT (Raspberry Pi 5, phones since 2018): four products of a row and each of
// four columns in one instruction.

#include "kernels/backends/cpu/int8/rows/neon_row.h"

namespace runnel::cpu {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 8;
constexpr int kGroup = 4;
constexpr int64_t kPackedStep = kRows * kGroup;
constexpr int64_t kPanelStep = kColumns * kGroup;

using Sums = int32x4_t[kRows][kColumns / 4];

// Step `kLane` of the four that `a` holds of each row.
template <int kLane>
inline void AddStep(const int8x16_t (&a)[kRows], const int8_t* b, Sums& sums) {
  const int8x16_t left = vld1q_s8(b), right = vld1q_s8(b + 16);
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = vdotq_laneq_s32(sums[r][0], left, a[r], kLane);
    sums[r][1] = vdotq_laneq_s32(sums[r][1], right, a[r], kLane);
  }
}

// Rows that lie apart, four steps of each contiguous.
void AddPixels(const RowPointers<kRows>& rows, const Int8Segment& segment, const int8_t* b,
               Sums& sums) {
  int64_t at = segment.a_offset, step = 0;
  int8x16_t a[kRows];
  for (; step + 4 <= segment.steps; step += 4, at += 16, b += 4 * kPanelStep) {
    for (int r = 0; r < kRows; ++r) a[r] = vld1q_s8(rows.p[r] + at);
    AddStep<0>(a, b, sums);
    AddStep<1>(a, b + kPanelStep, sums);
    AddStep<2>(a, b + 2 * kPanelStep, sums);
    AddStep<3>(a, b + 3 * kPanelStep, sums);
  }
  for (; step < segment.steps; ++step, at += kGroup, b += kPanelStep) {
    for (int r = 0; r < kRows; ++r) {
      int32_t bytes = 0;
      __builtin_memcpy(&bytes, rows.p[r] + at, kGroup);
      a[r] = vreinterpretq_s8_s32(vdupq_n_s32(bytes));
    }
    AddStep<0>(a, b, sums);
  }
}

template <int kLane>
inline void AddPackedRow(int8x16_t first, int8x16_t second, int8x16_t left, int8x16_t right,
                         Sums& sums) {
  sums[kLane][0] = vdotq_laneq_s32(sums[kLane][0], left, first, kLane);
  sums[kLane][1] = vdotq_laneq_s32(sums[kLane][1], right, first, kLane);
  sums[kLane + 4][0] = vdotq_laneq_s32(sums[kLane + 4][0], left, second, kLane);
  sums[kLane + 4][1] = vdotq_laneq_s32(sums[kLane + 4][1], right, second, kLane);
}

// Rows that lie side by side.
void AddPacked(const int8_t* a, int64_t steps, const int8_t* b, Sums& sums) {
  for (int64_t step = 0; step < steps; ++step, a += kPackedStep, b += kPanelStep) {
    const int8x16_t first = vld1q_s8(a), second = vld1q_s8(a + 16);
    const int8x16_t left = vld1q_s8(b), right = vld1q_s8(b + 16);
    AddPackedRow<0>(first, second, left, right, sums);
    AddPackedRow<1>(first, second, left, right, sums);
    AddPackedRow<2>(first, second, left, right, sums);
    AddPackedRow<3>(first, second, left, right, sums);
  }
}

void Tile(const Int8Tile& tile) {
  const RowPointers<kRows> rows(tile);
  Sums sums;
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = vdupq_n_s32(0);
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
  for (int r = 0; r < tile.rows; ++r) largest = FinishTileRow(tile, r, sums[r], largest);
  RaiseMaxLanes(tile, largest);
}

static_assert(kRows == kColumns);

}  // namespace

constinit const Int8Kernels kNeonDotprodInt8Kernels =
    NeonRow<kRows, kGroup, TurnByFour, false>("dotprod", Isa::kNeonDotprod, 512, Tile);
constinit const Int8Kernels kNeonDotprodLowestInt8Kernels =
    NeonRow<kRows, kGroup, TurnByFour, true>("dotprod_lowest", Isa::kNeonDotprod, 512, Tile);

}  // namespace runnel::cpu
