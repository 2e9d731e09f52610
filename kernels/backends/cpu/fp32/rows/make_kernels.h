#pragma once

// Makes a row of the table from a register type. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/rows/depthwise_kernels.h"
#include "kernels/backends/cpu/fp32/rows/elementwise_kernels.h"
#include "kernels/backends/cpu/fp32/rows/fake_quantize_kernels.h"
#include "kernels/backends/cpu/fp32/rows/norm_kernels.h"
#include "kernels/backends/cpu/fp32/rows/outer_kernels.h"
#include "kernels/backends/cpu/fp32/rows/product_kernels.h"
#include "kernels/backends/cpu/fp32/rows/transformer_kernels.h"
#include "kernels/backends/cpu/fp32/rows/winograd_kernels.h"
#include "kernels/ir/optimizers/element_steps.h"

namespace runnel::fp32 {

template <typename V>
constexpr Kernels MakeKernels(const char* name, Isa isa) {
  return {
      .name = name,
      .isa = isa,
      .width = V::kWidth,
      .tile_vectors = V::kTileVectors,
      .product = RunProduct<V>,
      .outer_product = RunOuterProduct<V>,
      .depthwise_row = RunDepthwiseRow<V>,
      .winograd_input = WinogradInput<V>,
      .winograd_output = WinogradOutput<V>,
      .depthwise_outer = RunDepthwiseOuter<V>,
      .transpose = Transpose<V>,
      .moments = Moments<V>,
      .sums = Sums<V>,
      .normalise = Normalise<V>,
      .normalise_sums = NormaliseSums<V>,
      .normalise_gradient = NormaliseGradient<V>,
      .row_product = RunRowProduct<V>,
      .score_maximum = transformer::ScoreMaximum<V>,
      .shares = transformer::SharesOf<V>,
      .score_gradient = transformer::ScoreGradient<V>,
      .layer_norm = transformer::LayerNorm<V>,
      .layer_norm_gradient = transformer::LayerNormGradient<V>,
      .sigmoid = transformer::Sigmoid<V>,
      .gelu = transformer::Gelu<V>,
      .gelu_gradient = transformer::GeluGradient<V>,
      .exact_gelu = transformer::ExactGelu<V>,
      .exact_gelu_gradient = transformer::ExactGeluGradient<V>,
      .relu = Relu<V>,
      .relu6 = Relu6<V>,
      .relu_gradient = ReluGradient<V>,
      .relu6_gradient = Relu6Gradient<V>,
      .relu_mask = StoreReluMask<V, false>,
      .relu6_mask = StoreReluMask<V, true>,
      .masked_gradient = MaskedGradient<V>,
      .add = Add<V>,
      .scale = Scale<V>,
      .updates =
          {
#define RUNNEL_OPTIMIZER(Id, ...) \
  optimizers::Update<V, optimizers::k##Id##Slots, optimizers::Id##Step>,
#include "proto/base/training/optimizers.inc"
#undef RUNNEL_OPTIMIZER
          },
      .take_maximum = TakeMaximum<V>,
      .dropout_mask = DropoutMask<V>,
      .apply_mask = ApplyMask<V>,
      .max_magnitude = MaxMagnitude<V>,
      .magnitude_sum = MagnitudeSum<V>,
      .tanh_grid = TanhGrid<V>,
      .tanh_product_sum = TanhProductSum<V>,
      .tanh_gradient = TanhGradient<V>,
      .unit_grid = UnitGrid<V>,
      .unit_gradient = UnitGradient<V>,
      .draw_words = DrawWords<V>,
      .error_grid = ErrorGridLoop<V>,
  };
}

}  // namespace runnel::fp32
