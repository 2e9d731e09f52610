#pragma once

// A recipe as data: how each operator becomes instructions, what its backward needs, how weights
// are held and which rule updates them (Mandheling 3.2: translation, back-propagation, weights,
// optimizer). The compiler reads these rows; no backend knows recipes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/program.h"

namespace runnel {

// What an operator's backward needs from its forward.
enum class Saved : uint8_t { kNothing, kInput, kOutput, kInputAndStats, kIndices };

// One operator's translation and back-propagation.
struct OpRule {
  OpKind op;
  OpCode forward;
  OpCode forward_eval;
  OpCode input_gradient;
  std::optional<OpCode> weight_gradient;  // none for operators without parameters
  Saved saved = Saved::kNothing;  // for input_gradient (the weight-gradient of conv and linear
                                  // reads x as well)
  // The result is an accumulator, which kRescale turns into an activation.
  bool rescale_forward = false;
  bool rescale_input_gradient = false;
};

struct Recipe {
  absl::string_view name;  // "fp32", "niti", "niti:niti2021"

  // Translation and back-propagation.
  DType activation = DType::kFloat32;  // kInt8: scaled
  absl::Span<const OpRule> rules;
  std::optional<OpCode> quantize;  // raw samples -> activation, where they enter
  OpCode add_gradients = OpCode::kAccumulate;

  // Weights.
  DType parameter = DType::kFloat32;  // kInt8: scaled, without bias; gradients are integers

  // Optimizer.
  OpCode loss = OpCode::kSoftmaxCrossEntropy;
  OpCode loss_eval = OpCode::kSoftmaxCrossEntropyEval;
  OpCode update = OpCode::kSgdUpdate;

  // Rounding of integer recipes.
  IntegerRule rescale;                                       // activations and errors
  Rounding gradient_rounding = Rounding::kPseudoStochastic;  // of weight-gradients
  Rounding loss_rounding = Rounding::kPseudoStochastic;      // of the loss gradient

  bool scaled() const { return activation == DType::kInt8; }
  NumberFormat format() const { return {activation, parameter}; }
  // Null if the recipe has no rule for the operator.
  const OpRule* Find(OpKind op) const;
};

// What is wrong with a recipe's rows: an instruction that is not known, an operator twice, a result
// that is not rescaled although it is an accumulator, an integer update of FP32 weights, ...
absl::Status CheckRecipe(const Recipe& recipe);

// InvalidArgument names the layer and operator that the recipe cannot train, and why: no rule, or
// integer weights with a bias, a dropout rate other than 0.5, average pooling with overlapping
// windows, ...
absl::Status CheckModel(const Recipe& recipe, const ModelSpec& model);

// The table, recipes/builtin_recipes.cc; each passes CheckRecipe.
absl::Span<const Recipe* const> BuiltinRecipes();
// InvalidArgument lists what there is.
absl::StatusOr<const Recipe*> FindRecipe(absl::string_view name);
std::vector<std::string> RecipeNames();

}  // namespace runnel
