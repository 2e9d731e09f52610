#pragma once

// Recipes whose products are those of integer codes, for who does not compile programs: what
// kernels/ir/passes/integer_products.h makes of each family. Pure function; any thread.

#include "proto/base/training/recipe_family.h"

namespace runnel {

// Values are FP32, and products have fewer bits than these.
inline bool MultipliesCodes(const RecipeFamily& family) {
  const bool has_float_values = family.format.activation == DType::kFloat32;
  return family.operands != nullptr && !family.is_emulated && has_float_values;
}

}  // namespace runnel
