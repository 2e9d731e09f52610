#include "kernels/ir/stage/updates.h"

#include <utility>

namespace runnel {
namespace {

void EmitScaledUpdates(ProgramWriter& writer, const std::vector<OpNode>& nodes) {
  for (const OpNode& node : nodes) {
    for (size_t i = 0; i < node.updated.size(); ++i) {
      writer.Emit(Part::kUpdate, *writer.recipe().update, node,
                  {node.parameters[i], node.gradients[i]}, {node.updated[i]});
    }
  }
}

// Tensor by tensor, so that the draws depend on no cut.
void EmitRoundedUpdates(ProgramWriter& writer, const std::vector<OpNode>& nodes,
                        const CompileOptions& options) {
  const StateLayout& state = writer.program().state;
  for (OpNode node : nodes) {
    if (!node.trains) continue;
    node.gate = kNoGate;
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      const Buffer weight = writer.buffer(node.parameters[i]);
      std::vector<BufferIndex> inputs = {node.parameters[i], node.gradients[i]};
      for (int64_t at = 0; at < state.slot_bytes; at += state.parameter_bytes) {
        inputs.push_back(writer.AddPlaced(Storage::kSlots, weight.dtype, weight.shape,
                                          at + weight.offset_bytes));
      }
      const BufferIndex updated = writer.AddPlaced(Storage::kNewParameters, weight.dtype,
                                                   weight.shape, weight.offset_bytes);
      writer.Emit(Part::kUpdate, writer.recipe().step, node, std::move(inputs), {updated});
      Instruction& update = writer.last(Part::kUpdate);
      update.optimizer = &StepOf(options.optimizer);
      update.grid = StepGridOf(writer.recipe(), node, i);
    }
  }
}

void EmitWholeUpdate(ProgramWriter& writer, OpNode node, const CompileOptions& options) {
  const StateLayout& state = writer.program().state;
  const int64_t bytes = state.parameter_bytes;
  const auto whole = [&](Storage storage, int64_t offset = 0) {
    return writer.AddPlaced(storage, DType::kFloat32, {bytes / static_cast<int64_t>(sizeof(float))},
                            offset);
  };
  node.gate = kNoGate;
  const OpSpec none;
  node.spec = &none;
  const BufferIndex parameters = whole(Storage::kParameters);
  const BufferIndex gradients = whole(Storage::kGradients);
  std::vector<BufferIndex> inputs = {parameters, gradients};
  for (int64_t at = 0; at < state.slot_bytes; at += bytes)
    inputs.push_back(whole(Storage::kSlots, at));
  writer.Emit(Part::kUpdate, OpCode::kOptimizerUpdate, node, std::move(inputs),
              {whole(Storage::kNewParameters)});
  writer.last(Part::kUpdate).optimizer = &StepOf(options.optimizer);
}

}  // namespace

void EmitUpdates(ProgramWriter& writer, const std::vector<OpNode>& nodes,
                 const CompileOptions& options) {
  if (writer.program().state.parameter_bytes == 0) return;
  if (IsScaled(writer.recipe().numbers.parameter)) return EmitScaledUpdates(writer, nodes);
  if (writer.recipe().step_grid) return EmitRoundedUpdates(writer, nodes, options);
  EmitWholeUpdate(writer, nodes.front(), options);
}

}  // namespace runnel
