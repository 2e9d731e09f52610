// Advanced SIMD with SDOT (Raspberry Pi 5, phones since 2018): four products of a row and each of
// four columns in one instruction.

#include "kernels/backends/cpu/int8/rows/neon_loops.h"
#include "kernels/backends/cpu/int8/rows/neon_packing.h"

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
using Packing = NeonPacking<kRows, kGroup, TurnByFour>;

// kLowest: depthwise rows whose values may be -128, which are slower.
template <bool kLowest>
constexpr Int8Kernels MakeRow() {
  return {
      .name = kLowest ? "dotprod_lowest" : "dotprod",
      .isa = Isa::kNeonDotprod,
      .tile_rows = kRows,
      .panel_columns = kColumns,
      .column_unit = kColumns,
      .k_group = kGroup,
      .a_bias = 0,
      .takes_lowest = kLowest,
      .panel_steps = 512,
      .tile = Tile,
      .copy_a = Packing::CopyA,
      .pack_a = Packing::PackA,
      .pack_b_columns = Packing::PackBColumns,
      .pack_b_rows = Packing::PackBRows,
      .column_start = nullptr,
      .rescale_pseudo_stochastic = NeonRescalePseudoStochastic,
      .rescale_half_away = NeonRescaleHalfAway,
      .max_abs = NeonMaxAbs,
      .subtract_saturating = NeonSubtractSaturating,
      .depthwise_row = NeonDepthwiseRow<kLowest>,
      .depthwise_weight_row = NeonDepthwiseWeightRow<kLowest>,
  };
}

}  // namespace

constinit const Int8Kernels kNeonDotprodInt8Kernels = MakeRow<false>();
constinit const Int8Kernels kNeonDotprodLowestInt8Kernels = MakeRow<true>();

}  // namespace runnel::cpu
