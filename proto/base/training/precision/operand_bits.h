#pragma once

// How many bits a recipe gives the operands of a product, for those who count what few bits save
// (precision_cost.h). Pure functions; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/base/training/grid_bits.h"

namespace runnel {

// Where a product stands in its model. The first of these that holds.
enum class ProductPlace : uint8_t {
  kOutside,    // attention and the logits of gates: FP32 with every recipe
  kFirst,      // no operator with weights comes before it
  kLast,       // none comes behind it
  kDepthwise,  // of a convolution with a group for each input channel
  kInner,      // all others
};

struct ProductSite {
  ProductPlace place = ProductPlace::kInner;
  bool is_linear = false;  // of a linear layer, not of a convolution

  bool is_end() const { return place == ProductPlace::kFirst || place == ProductPlace::kLast; }

  friend bool operator==(const ProductSite&, const ProductSite&) = default;
};

// 32: FP32.
struct OperandBits {
  double weight = 32;
  double activation = 32;
  double gradient = 32;
  double gradient_for_weights = 32;  // as the weight-gradient reads it

  friend bool operator==(const OperandBits&, const OperandBits&) = default;
};
inline OperandBits BitsOfAll(double weight, double activation, double gradient) {
  return {weight, activation, gradient, gradient};
}

// Of a recipe family: its bits by what stands behind the colon of a name, at a site that is not
// outside, in a level of --precision (0/0: the recipe's own bits, which families without levels
// always have).
using OperandBitsOf = OperandBits(absl::Span<const std::string> parameters, const ProductSite& site,
                                  const GridBits& level);

// recipe_families.inc names one for each family that has fixed bits or levels.
OperandBitsOf DorefaOperands, SbmOperands, SbmRangeOperands, MlsOperands, OctoOperands,
    WageubnOperands, Fp8ChunkOperands;
// 8 bits everywhere; but for a model's ends; 16 bits everywhere.
OperandBitsOf ByteOperands, InnerByteOperands, HalfOperands;

// The bits of the grids of sbm's depthwise convolutions, whatever its name and level say.
inline constexpr GridBits kSbmDepthwise = {8, 16};

}  // namespace runnel
