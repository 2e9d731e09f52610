#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/recipe.h"
#include "kernels/recipes/fp32.h"
#include "kernels/recipes/niti.h"

namespace runnel {

absl::Span<const Recipe* const> BuiltinRecipes() {
  static const Recipe* const recipes[] = {&Fp32Recipe(), &NitiMandhelingRecipe(), &Niti2020Recipe(),
                                          &Niti2021Recipe()};
  return recipes;
}

absl::StatusOr<const Recipe*> FindRecipe(absl::string_view name) {
  for (const Recipe* recipe : BuiltinRecipes()) {
    if (recipe->name == name) return recipe;
  }
  return absl::InvalidArgumentError(absl::StrCat("recipe '", name, "' is not known; there is ",
                                                 absl::StrJoin(RecipeNames(), ", ")));
}

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const Recipe* recipe : BuiltinRecipes()) names.emplace_back(recipe->name);
  return names;
}

}  // namespace runnel
