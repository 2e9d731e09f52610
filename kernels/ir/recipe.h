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
#include "kernels/ir/operator_place.h"
#include "kernels/ir/program.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {

// The part of an operator's forward that its backward needs.
enum class Saved : uint8_t {
  kNothing,
  kInput,
  kOtherInput,  // of two
  kOutput,
  kInputAndStats,
  kIndices,
  kInputOutputAndSums,
  kAllInputs,
};

// One operator's translation and back-propagation.
struct OpRule {
  OpKind op;
  OpCode forward;
  OpCode forward_eval;
  OpCode input_gradient;
  std::optional<OpCode> weight_gradient;  // none for operators without parameters
  // Saved for input_gradient; the weight-gradient of conv and linear reads x as well.
  Saved saved = Saved::kNothing;
  // The result is an accumulator, which kRescale turns into an activation.
  bool rescale_forward = false;
  bool rescale_input_gradient = false;
  // Of an operator with two inputs: what leads to the second one, where input_gradient does not.
  std::optional<OpCode> second_gradient = std::nullopt;
  // Of a gate that learns: in place of both forwards.
  std::optional<OpCode> learned_forward = std::nullopt;
};

// FP32 values that are put on a grid before the products of an operator with weights read them.
struct Quantizer {
  OpCode code;
  GridRule grid;

  friend bool operator==(const Quantizer&, const Quantizer&) = default;
};

// Activations on a grid, which evaluation may take from training: of their range.
struct InputQuantizer {
  OpCode forward;
  OpCode forward_eval;
  GridRule grid;

  Quantizer training() const { return {forward, grid}; }
};

// The grids of both operands of an operator's three products; none: the value as it is. Gradients
// pass straight through the grids of inputs and weights. What two products read on the same grid is
// rounded once.
struct ProductGrids {
  struct Forward {
    std::optional<InputQuantizer> input;
    std::optional<Quantizer> weight;
  } forward;
  struct InputGradient {
    std::optional<Quantizer> error;  // the gradient of the operator's output
    std::optional<Quantizer> weight;
  } input_gradient;
  struct WeightGradient {
    std::optional<Quantizer> error;
    std::optional<Quantizer> input;
  } weight_gradient;
  // Leads from the gradient of the forward's weight to that of the parameter, which is then a master
  // weight. None: the gradient passes straight through.
  std::optional<OpCode> master_gradient;
};

// The places of recipes that leave both ends of a model in full precision, which lose most by grids.
inline constexpr Place kInnerPlaces[] = {Place::kDepthwise, Place::kShortcut, Place::kInner};

// One grid an operand, whichever product reads it.
ProductGrids GridsOfAllProducts(std::optional<Quantizer> weight,
                                std::optional<InputQuantizer> input,
                                std::optional<Quantizer> error);

// Grids of some operators with weights.
struct GridRow {
  absl::Span<const Place> places;  // empty: all; of static life
  std::optional<OpKind> op;        // none: convolutions and linear layers
  ProductGrids grids;
};

struct Recipe {
  std::string name;                      // "fp32", "niti", "niti:niti2021"
  const RecipeFamily* family = nullptr;  // names the models that the recipe cannot train
  NumberFormat numbers;                  // the type of each kind of value: the family's

  // Translation and back-propagation.
  std::vector<OpRule> rules;
  std::optional<OpCode> quantize;  // raw samples -> activation, where they enter
  OpCode add_gradients = OpCode::kAccumulate;
  GridRule operator_grid;  // of the rules' instructions that have one
  // An operator with weights has the grids of the first row that fits it, if any. With a grid of
  // weights the parameters are master weights: each pass makes anew what it computes with.
  std::vector<GridRow> grids;

  // Weights.
  // Adds a micro-batch's gradient to the step's; none: weight-gradients add on their own.
  std::optional<OpCode> add_weight_gradient;

  // Optimizer.
  OpCode loss = OpCode::kSoftmaxCrossEntropy;
  OpCode loss_eval = OpCode::kSoftmaxCrossEntropyEval;
  std::optional<OpCode> update;  // of integer weights; FP32 ones have the optimizer's
  // Small floats that FP32 weights and what the optimizer keeps of them are rounded to at random
  // behind each step.
  std::optional<GridRule> step_grid;
  // The step of a tensor with step_grid; kFixedUpdate: on fixed points, but not of operators with
  // weights that have no grids.
  OpCode step = OpCode::kRoundedUpdate;

  // Rounding of integer recipes.
  IntegerRule rescale;                                       // activations and errors
  Rounding gradient_rounding = Rounding::kPseudoStochastic;  // rounding of weight-gradients
  Rounding loss_rounding = Rounding::kPseudoStochastic;      // rounding of the loss gradient

  // Null if the recipe has no rule for the operator.
  const OpRule* Find(OpKind op) const;
  // Null: the operator's values stay as they are.
  const ProductGrids* GridsAt(Place place, OpKind op) const;
};

// Checks a recipe's rows. Errors: an unknown instruction, an operator twice, a result that is not
// rescaled although it is an accumulator, an integer update of FP32 weights, ...
absl::Status CheckRecipe(const Recipe& recipe);

// InvalidArgument names the layer and operator that the recipe cannot train, and why: no rule, or
// what CheckTrainable says of its family, or a pool's window of more than 256 elements.
absl::Status CheckModel(const Recipe& recipe, const ModelSpec& model);

// The recipe of a name (recipe_family.h). It is made once and lives as long as the process.
// InvalidArgument as ParseRecipeName's. Any thread.
absl::StatusOr<const Recipe*> FindRecipe(absl::string_view name);
// A worker's offer: OfferOf each family.
std::vector<std::string> RecipeOffers();

}  // namespace runnel
