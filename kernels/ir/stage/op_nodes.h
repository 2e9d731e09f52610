#pragma once

// The operators of a stage in the order in which the forward runs them, before any of them is an
// instruction. Used by StageBuilder only. A pure function; any thread.

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ir/program.h"
#include "kernels/ir/recipe.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

inline constexpr BufferIndex kNoBuffer = -1;

// One operator of the stage and the values around it in training, or the view of a value in
// another shape (kCopy, as of a flatten) that stands before or behind an operator.
struct OpNode {
  int layer = 0;
  int op = 0;
  const OpSpec* spec = nullptr;
  const OpRule* rule = nullptr;
  const ProductGrids* grids = nullptr;  // of its operands; null: none, or no operator with weights
  bool trains = false;                  // has parameters that step
  bool evaluates = false;  // frozen, and no gradient passes: training runs it as evaluation does
  Shape shape;             // of the output
  bool learns_choice = false;  // a gate that is not held
  bool is_view = false;
  bool reads_last = false;  // the output of the node before, in place of the operator's inputs
  bool gives_value = true;  // the output is the operator's
  std::vector<BufferIndex> inputs;
  BufferIndex read_input = kNoBuffer;  // by the forward: on the grid if there is one
  // What the weight-gradient reads, where that is not the forward's input and the gradient of the
  // output as the input-gradient reads it.
  BufferIndex input_again = kNoBuffer;
  BufferIndex error_again = kNoBuffer;
  BufferIndex output = kNoBuffer;
  BufferIndex by_product = kNoBuffer;     // a norm's stats, max-pool's indices, attention's sums
  BufferIndex dscale_dshift = kNoBuffer;  // a norm's, from its input-gradient
  std::vector<BufferIndex> parameters;
  std::vector<BufferIndex> gradients;  // of parameters that step
  std::vector<BufferIndex> updated;    // of those, the next version
  std::vector<BufferIndex> statistics;
  BufferIndex gate = kNoBuffer;         // the choice whose samples it computes, of the part emitted
  BufferIndex exploration = kNoBuffer;  // of a gate that learns, and of its unpacking
  BufferIndex explored = kNoBuffer;   // of the unpacking: what the samples of the exploration give
  BufferIndex range = kNoBuffer;      // of the input, for evaluation
  BufferIndex deviation = kNoBuffer;  // of the output's gradient, if its quantizer says one
  std::vector<BufferIndex> widths;    // of operands, by row of TensorRole::kWidths
  // Of a compensation behind the operator: gain, compensation, offset; the gradients of those that
  // step, and that of the output.
  std::vector<BufferIndex> compensation;
  std::vector<BufferIndex> compensation_gradients;
  BufferIndex compensated_error = kNoBuffer;
};

// What the node's forward makes for its backward beside the output; none where that needs nothing.
struct ByProduct {
  DType dtype = DType::kFloat32;
  Shape shape;
};
std::optional<ByProduct> ByProductOf(const OpNode& node);

// What the node's input-gradient at `place` reads beside the output's gradient and weights.
std::vector<BufferIndex> SavedOperands(const OpNode& node, size_t place);

// The grid of the step of the node's i-th parameter, of a recipe with Recipe::step_grid.
GridRule StepGridOf(const Recipe& recipe, const OpNode& node, size_t i);

// The nodes of these layers, without values. `infos` is InferShapes(model, batch). InvalidArgument:
// nobody reads an operator's output, or a frozen batch norm stands behind layers that are trained.
absl::StatusOr<std::vector<OpNode>> NodesOf(const ModelSpec& model,
                                            const std::vector<LayerInfo>& infos, int first_layer,
                                            int last_layer, const Recipe& recipe);

}  // namespace runnel
