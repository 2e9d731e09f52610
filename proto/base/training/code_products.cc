#include "proto/base/training/code_products.h"

namespace runnel {

KeptCodes KeptCodesOf(const RecipeFamily& family, const ModelSpec& model) {
  return HasGates(model) ? KeptCodes::kNone : family.kept_codes;
}

}  // namespace runnel
