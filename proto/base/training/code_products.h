#pragma once

// Which recipes multiply codes of grids as integers, by their rows and the model. Pure functions; any
// thread.

#include "proto/base/model/model_spec.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {

// What the family keeps for the backward: nothing of codes beside gates.
KeptCodes KeptCodesOf(const RecipeFamily& family, const ModelSpec& model);
// Whether the family's products are those of rounded floats because the model has gates.
bool GatesEmulate(const RecipeFamily& family, const ModelSpec& model);

}  // namespace runnel
