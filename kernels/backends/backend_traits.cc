#include "kernels/backends/backend_traits.h"

#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<CompileOptions> CompileOptionsFor(const BackendTraits& traits, const Recipe& recipe,
                                                 const StagePrograms& programs) {
  const bool is_integer = recipe.numbers.integer_parameters();
  if (IsHalf(recipe.numbers.activation) && !traits.computes_halves) {
    return absl::UnimplementedError(
        absl::StrCat("recipe ", recipe.name, ": backend ", traits.name, " does not compute in ",
                     Name(recipe.numbers.activation), "; take --backend cpu or ref"));
  }
  if (is_integer && programs.rescale.keeps() && !traits.rescales_in_products) {
    return absl::UnimplementedError(absl::StrCat(
        "--rescale ", programs.rescale.mode == RescaleMode::kStatic ? "static" : "adaptive",
        ": backend ", traits.name,
        " keeps no scales; take --rescale dynamic or speculate, or backend cpu, "
        "hexagon or ref"));
  }
  if (is_integer && programs.batch_split.mode == BatchSplitMode::kShifted &&
      !traits.shifts_slices) {
    return absl::UnimplementedError(
        absl::StrCat("--batch-split shifted:", programs.batch_split.samples, ": backend ",
                     traits.name, " shifts no slices; take --batch-split ",
                     programs.batch_split.samples, ", or backend cpu, hexagon or ref"));
  }
  return CompileOptions{
      .accumulates_gradients = programs.accumulates,
      .max_batch = programs.max_batch,
      .recomputes = traits.recomputes,
      .one_in_flight = programs.one_in_flight,
      .defers_weight_gradients = programs.defers_weight_gradients,
      .steps_in_backward = programs.one_in_flight && !programs.accumulates && traits.recomputes,
      .rescale = programs.rescale,
      .rescales_in_products = traits.rescales_in_products,
      .stash = traits.stash,
      .batch_split = programs.batch_split,
      .optimizer = programs.optimizer,
      .averages_weights = programs.averages_weights};
}

bool MeasuresSlices(const BackendTraits& traits, const Recipe& recipe, const BatchSplitRule& rule) {
  return rule.mode == BatchSplitMode::kAuto && recipe.numbers.integer_parameters() &&
         traits.takes_slices;
}

}  // namespace runnel
