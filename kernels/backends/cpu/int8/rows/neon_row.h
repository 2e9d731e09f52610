#pragma once

// The kernels of an instruction set of arm64, of which each has its own tile. In an anonymous
// namespace for the reason that packing_loops.h gives.

#include "kernels/backends/cpu/int8/rows/neon_loops.h"
#include "kernels/backends/cpu/int8/rows/neon_packing.h"

#if defined(__aarch64__)

namespace runnel::cpu {
namespace {

// Tiles of kSide rows and as many columns. kLowest: depthwise rows whose values may be -128, which are
// slower.
template <int kSide, int kGroup, void (*kTurn)(const int8_t*, int64_t, int8_t*), bool kLowest>
constexpr Int8Kernels NeonRow(const char* name, Isa isa, int64_t panel_steps,
                              void (*tile)(const Int8Tile&)) {
  using Packing = NeonPacking<kSide, kGroup, kTurn>;
  return {
      .name = name,
      .isa = isa,
      .tile_rows = kSide,
      .panel_columns = kSide,
      .column_unit = kSide,
      .k_group = kGroup,
      .a_bias = 0,
      .takes_lowest = kLowest,
      .panel_steps = panel_steps,
      .tile = tile,
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
}  // namespace runnel::cpu
#endif  // __aarch64__
