#include "proto/base/training/code_products.h"

namespace runnel {

bool MultipliesCodes(const RecipeFamily& family, const ModelSpec& model) {
  return family.grids.any() && !family.is_emulated && !HasGates(model);
}

bool GatesEmulate(const RecipeFamily& family, const ModelSpec& model) {
  return family.grids.any() && !family.is_emulated && HasGates(model);
}

}  // namespace runnel
