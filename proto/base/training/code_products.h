#pragma once

// Which recipes multiply codes of grids as integers, by their rows and the model. Pure functions; any
// thread.

#include "proto/base/model/model_spec.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {

// What plans count of what the family keeps for the backward. Beside gates they count values in FP32,
// which is more than the codes that programs keep.
KeptCodes KeptCodesOf(const RecipeFamily& family, const ModelSpec& model);

}  // namespace runnel
