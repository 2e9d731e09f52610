#pragma once

// Who makes the recipes of each family: a function a row of
// proto/base/training/recipe_families.inc, defined in the family's own file.

#include "kernels/ir/recipe.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {

// `name` is of this family. The result passes CheckRecipe; family, numbers and name are set by the
// caller.
#define RUNNEL_RECIPE_FAMILY(Id, ...) Recipe Make##Id##Recipe(const RecipeName& name);
#include "proto/base/training/recipe_families.inc"
#undef RUNNEL_RECIPE_FAMILY

}  // namespace runnel
