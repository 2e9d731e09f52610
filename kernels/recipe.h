#pragma once

// A recipe as data: how each operator becomes instructions, and which rule updates the weights
// (Mandheling 3.2). The compiler reads these rows; no backend knows recipes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/program.h"

namespace runnel {

// What an operator's backward needs from its forward.
enum class Saved : uint8_t { kNothing, kInput, kOutput, kInputAndStats, kIndices };

// One operator's translation.
struct OpRule {
  OpKind op;
  OpCode forward;
  OpCode forward_eval;
  OpCode input_gradient;
  std::optional<OpCode> weight_gradient;  // none for operators without parameters
  Saved saved = Saved::kNothing;  // for input_gradient (the weight-gradient of conv and linear
                                  // reads x as well)
};

struct Recipe {
  absl::string_view name;  // "fp32"
  DType activation = DType::kFloat32;
  absl::Span<const OpRule> rules;
  OpCode loss = OpCode::kSoftmaxCrossEntropy;
  OpCode loss_eval = OpCode::kSoftmaxCrossEntropyEval;
  OpCode update = OpCode::kSgdUpdate;

  // Null if the recipe has no rule for the operator.
  const OpRule* Find(OpKind op) const;
};

// The table, recipes/builtin_recipes.cc.
absl::Span<const Recipe* const> BuiltinRecipes();
// InvalidArgument lists what there is.
absl::StatusOr<const Recipe*> FindRecipe(absl::string_view name);
std::vector<std::string> RecipeNames();

}  // namespace runnel
