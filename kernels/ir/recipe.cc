#include "kernels/ir/recipe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::Status CheckRule(const Recipe& recipe, const OpRule& rule) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("recipe ", recipe.name, ", operator ", Name(rule.op), ": ", what));
  };
  if (Name(rule.op) == "?") return error("is not known");
  if (recipe.Find(rule.op) != &rule) return error("has two rules");
  for (OpCode code : {rule.forward, rule.forward_eval, rule.input_gradient,
                      rule.weight_gradient.value_or(rule.forward)}) {
    if (Name(code) == "?") return error("has an instruction that is not known");
  }
  if (TraitsOf(rule.forward).gives_sums != rule.rescale_forward) {
    return error(absl::StrCat(Name(rule.forward), " and rescaling do not fit"));
  }
  if (TraitsOf(rule.input_gradient).gives_sums != rule.rescale_input_gradient) {
    return error(absl::StrCat(Name(rule.input_gradient), " and rescaling do not fit"));
  }
  if (rule.rescale_forward && !IsScaled(recipe.numbers.activation)) {
    return error("rescales FP32 activations");
  }
  if (rule.saved == Saved::kInputAndStats && IsScaled(recipe.numbers.activation)) {
    return error("statistics of integer activations are not defined");
  }
  return absl::OkStatus();
}

absl::Status CheckGrids(const Recipe& recipe) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("recipe ", recipe.name, ": ", what));
  };
  const auto check = [&](const std::optional<Quantizer>& quantizer) {
    if (!quantizer) return absl::OkStatus();
    if (IsScaled(recipe.numbers.weight)) return error("fake quantisation is for FP32 values");
    const int bits = quantizer->grid.bits;
    return bits < 1 || bits > 16 ? error("a grid has 1 to 16 bits") : absl::OkStatus();
  };
  for (const GridRow& row : recipe.grids) {
    const ProductGrids& grids = row.grids;
    if (grids.master_gradient && !grids.forward.weight)
      return error("what leads to a master weight needs a grid of weights");
    if (grids.forward.input) RUNNEL_RETURN_IF_ERROR(check(grids.forward.input->training()));
    for (const std::optional<Quantizer>& one :
         {grids.forward.weight, grids.input_gradient.error, grids.input_gradient.weight,
          grids.weight_gradient.error, grids.weight_gradient.input})
      RUNNEL_RETURN_IF_ERROR(check(one));
  }
  return absl::OkStatus();
}

// The position of a window's maximum is kept as a byte.
constexpr int64_t kMaxWindow = 256;

}  // namespace

const OpRule* Recipe::Find(OpKind op) const {
  for (const OpRule& rule : rules) {
    if (rule.op == op) return &rule;
  }
  return nullptr;
}

const ProductGrids* Recipe::GridsAt(Place place, OpKind op) const {
  for (const GridRow& row : grids) {
    const bool is_here = std::find(row.places.begin(), row.places.end(), place) != row.places.end();
    if ((row.places.empty() || is_here) && row.op.value_or(op) == op) return &row.grids;
  }
  return nullptr;
}

ProductGrids GridsOfAllProducts(std::optional<Quantizer> weight,
                                std::optional<InputQuantizer> input,
                                std::optional<Quantizer> error) {
  ProductGrids grids;
  grids.forward = {input, weight};
  grids.input_gradient = {error, weight};
  grids.weight_gradient.error = error;
  if (input) grids.weight_gradient.input = input->training();
  return grids;
}

absl::Status CheckRecipe(const Recipe& recipe) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("recipe ", recipe.name, ": ", what));
  };
  for (const OpRule& rule : recipe.rules) RUNNEL_RETURN_IF_ERROR(CheckRule(recipe, rule));
  for (OpCode code :
       {recipe.add_gradients, recipe.loss, recipe.loss_eval, recipe.update.value_or(OpCode::kCopy),
        recipe.quantize.value_or(OpCode::kCopy)}) {
    if (Name(code) == "?") return error("has an instruction that is not known");
  }
  const NumberFormat& numbers = recipe.numbers;
  if (IsScaled(numbers.parameter) != recipe.update.has_value()) {
    return error("integer weights need an update of their own, FP32 ones have the optimizer's");
  }
  if (recipe.step_grid && IsScaled(numbers.parameter))
    return error("integer weights step by whole mantissas");
  if (recipe.gradient_rounding == Rounding::kStochastic) {
    return error("stochastic rounding of gradients is not defined");
  }
  if ((numbers.activation != DType::kFloat32) != recipe.quantize.has_value()) {
    return error("activations need a way in for raw samples, FP32 ones none");
  }
  if (IsScaled(numbers.activation) != IsScaled(numbers.error)) {
    return error("activations and their gradients are both integers or both floats");
  }
  if (numbers.weight != numbers.parameter &&
      !(IsHalf(numbers.weight) && numbers.parameter == DType::kFloat32)) {
    return error("products read weights as they are kept, or FP32 ones as halves");
  }
  if (numbers.activation != numbers.weight) {
    return error("products read activations and weights in one type");
  }
  if (IsScaled(numbers.weight_gradient) != recipe.add_weight_gradient.has_value()) {
    return error("integer weight-gradients need an instruction that adds them, FP32 ones none");
  }
  return CheckGrids(recipe);
}

absl::Status CheckModel(const Recipe& recipe, const ModelSpec& model) {
  if (recipe.family != nullptr) RUNNEL_RETURN_IF_ERROR(CheckTrainable(model, *recipe.family));
  for (const LayerSpec& layer : model.layers) {
    for (size_t i = 0; i < layer.ops.size(); ++i) {
      const OpSpec& op = layer.ops[i];
      const std::string where =
          absl::StrCat("layer ", layer.name, ", op ", i, " (", Name(op.kind), "): ");
      if (recipe.Find(op.kind) == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, "recipe ", recipe.name, " has no rule for it"));
      }
      if (op.kind == OpKind::kMaxPool && op.kernel[0] * op.kernel[1] > kMaxWindow) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, "window of more than ", kMaxWindow, " elements"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel
