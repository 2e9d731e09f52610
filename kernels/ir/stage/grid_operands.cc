#include "kernels/ir/stage/grid_operands.h"

#include <optional>
#include <utility>

namespace runnel {
namespace {

// Puts a value on a quantizer's grid; gives the new one.
BufferIndex EmitQuantizer(ProgramWriter& writer, Part part, const Quantizer& quantizer,
                          const OpNode& node, BufferIndex from, const Shape& shape) {
  const BufferIndex to = writer.AddValue(writer.buffer(from).dtype, shape);
  writer.program().buffers[to].packed_by = writer.buffer(from).packed_by;
  std::vector<BufferIndex> operands = {from}, results = {to};
  if (node.deviation != kNoBuffer && quantizer.grid.is_gradient &&
      TraitsOf(quantizer.code).min_outputs > 1)
    results.push_back(node.deviation);
  if (!node.widths.empty()) {
    const size_t row = quantizer.grid.is_gradient ? 3 : (part == Part::kInputGradient ? 2 : 0);
    const bool reads_only = part == Part::kForwardEval || node.evaluates;
    (reads_only ? operands : results).push_back(node.widths[row]);
  }
  writer.Emit(part, quantizer.code, node, std::move(operands), std::move(results));
  GridRule& grid = writer.last(part).grid;
  grid = quantizer.grid;
  grid.to_nearest = part == Part::kForwardEval;
  return to;
}

BufferIndex EmitGradientGrid(ProgramWriter& writer, OpNode& node, const Quantizer& quantizer,
                             BufferIndex from) {
  if (TraitsOf(quantizer.code).min_outputs > 1 && quantizer.grid.is_gradient)
    node.deviation = writer.AddValue(DType::kFloat32, {1});
  return EmitQuantizer(writer, Part::kInputGradient, quantizer, node, from,
                       Shape(writer.buffer(from).shape));
}

}  // namespace

BufferIndex InputFor(ProgramWriter& writer, Part part, const OpNode& node, BufferIndex x) {
  if (node.grids == nullptr || !node.grids->forward.input) return x;
  const InputQuantizer& quantizer = *node.grids->forward.input;
  const bool trains = part == Part::kForward && !node.evaluates;
  const BufferIndex to =
      writer.AddActivation(Shape(writer.buffer(x).shape), writer.buffer(x).packed_by);
  std::vector<BufferIndex> inputs = {x}, outputs = {to};
  if (node.range != kNoBuffer) (trains ? outputs : inputs).push_back(node.range);
  if (!node.widths.empty()) (trains ? outputs : inputs).push_back(node.widths[1]);
  writer.Emit(part, trains ? quantizer.forward : quantizer.forward_eval, node, std::move(inputs),
              std::move(outputs));
  GridRule& grid = writer.last(part).grid;
  grid = quantizer.grid;
  grid.to_nearest = part == Part::kForwardEval;
  return to;
}

BufferIndex WeightFor(ProgramWriter& writer, Part part, const OpNode& node) {
  const BufferIndex parameter = node.parameters[0];
  if (node.grids == nullptr) return parameter;
  const std::optional<Quantizer>& quantizer =
      part == Part::kInputGradient ? node.grids->input_gradient.weight : node.grids->forward.weight;
  if (!quantizer) return parameter;
  // Rows of output channels: weights are row-major, whatever lies beside them.
  const Shape& shape = writer.buffer(parameter).shape;
  const Shape rows = {shape[0], shape.elements() / shape[0]};
  return EmitQuantizer(writer, part, *quantizer, node, parameter, rows);
}

void AppendWeights(ProgramWriter& writer, Part part, const OpNode& node,
                   std::vector<BufferIndex>* inputs) {
  for (size_t i = 0; i < node.parameters.size(); ++i)
    inputs->push_back(i == 0 ? WeightFor(writer, part, node) : node.parameters[i]);
}

void EmitGradientGrids(ProgramWriter& writer, OpNode& node, bool leads_on, BufferIndex& dy) {
  node.compensated_error = dy;
  if (node.grids == nullptr) return;
  const auto& [error, weight] = node.grids->input_gradient;
  const auto& [error_again, input_again] = node.grids->weight_gradient;
  const auto& input = node.grids->forward.input;
  const bool is_input_shared = input ? input_again == input->training() : !input_again;
  if (node.trains && !is_input_shared) {
    node.input_again = node.inputs[0];
    if (input_again)
      node.input_again = EmitGradientGrid(writer, node, *input_again, node.inputs[0]);
  }
  const BufferIndex plain = dy;
  if (error && (leads_on || error == error_again))
    dy = EmitGradientGrid(writer, node, *error, plain);
  if (!node.trains || error_again == error) return;
  node.error_again = plain;
  if (error_again) node.error_again = EmitGradientGrid(writer, node, *error_again, plain);
}

}  // namespace runnel
