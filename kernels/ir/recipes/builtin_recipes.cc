#include <map>
#include <memory>
#include <mutex>

#include "kernels/ir/recipe.h"
#include "kernels/ir/recipes/make_recipes.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using MakeRecipe = Recipe (*)(const RecipeName& name);

// In the order of RecipeFamilies().
#define RUNNEL_RECIPE_FAMILY(Id, ...) Make##Id##Recipe,
constexpr MakeRecipe kMakers[] = {
#include "proto/base/training/recipe_families.inc"
};
#undef RUNNEL_RECIPE_FAMILY

Recipe Make(const RecipeName& name) {
  Recipe recipe = kMakers[name.family - RecipeFamilies().data()](name);
  recipe.name = name.text;
  recipe.family = name.family;
  recipe.numbers = name.family->format;
  return recipe;
}

}  // namespace

absl::StatusOr<const Recipe*> FindRecipe(absl::string_view name) {
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName parsed, ParseRecipeName(name));
  static std::mutex mutex;
  static auto* const made = new std::map<std::string, std::unique_ptr<const Recipe>>();
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<const Recipe>& recipe = (*made)[parsed.text];
  if (recipe == nullptr) recipe = std::make_unique<const Recipe>(Make(parsed));
  return recipe.get();
}

std::vector<std::string> RecipeOffers() {
  std::vector<std::string> offers;
  for (const RecipeFamily& family : RecipeFamilies()) offers.push_back(OfferOf(family));
  return offers;
}

}  // namespace runnel
