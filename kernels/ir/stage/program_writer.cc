#include "kernels/ir/stage/program_writer.h"

#include <utility>

namespace runnel {

BufferIndex ProgramWriter::Add(const Buffer& buffer, bool placed) {
  program_.buffers.push_back(buffer);
  placed_.push_back(placed);
  return static_cast<BufferIndex>(program_.buffers.size()) - 1;
}

BufferIndex ProgramWriter::AddPlaced(Storage storage, DType dtype, const Shape& shape,
                                     int64_t offset, bool scaled) {
  return Add({storage, dtype, shape, offset, scaled}, /*placed=*/true);
}

BufferIndex ProgramWriter::AddBoundary(Storage storage, const Shape& shape) {
  const bool is_gradient =
      storage == Storage::kOutputGradient || storage == Storage::kInputGradient;
  const DType dtype = is_gradient ? recipe_.numbers.error : recipe_.numbers.activation;
  return AddPlaced(storage, dtype, shape, 0, IsScaled(dtype));
}

BufferIndex ProgramWriter::AddValue(DType dtype, const Shape& shape, bool scaled) {
  return Add({Storage::kScratch, dtype, shape, 0, scaled}, /*placed=*/false);
}

BufferIndex ProgramWriter::AddActivation(const Shape& shape, BufferIndex packed_by) {
  const DType dtype = recipe_.numbers.activation;
  const BufferIndex value = AddValue(dtype, shape, IsScaled(dtype));
  program_.buffers[value].packed_by = packed_by;
  return value;
}

BufferIndex ProgramWriter::AddGradientOf(BufferIndex value) {
  const DType dtype = recipe_.numbers.error;
  const BufferIndex gradient =
      AddValue(dtype, Shape(program_.buffers[value].shape), IsScaled(dtype));
  program_.buffers[gradient].packed_by = program_.buffers[value].packed_by;
  return gradient;
}

void ProgramWriter::Emit(Part part, OpCode code, const OpNode& node,
                         std::vector<BufferIndex> inputs, std::vector<BufferIndex> outputs) {
  Instruction& instruction = program_.parts[static_cast<int>(part)].emplace_back();
  instruction = {code, std::move(inputs), std::move(outputs), node.layer, node.op, *node.spec};
  instruction.gate = node.gate;
  if (node.gate != kNoGate) instruction.keeps.push_back(node.gate);  // who runs it reads the choice
  instruction.integer = recipe_.rescale;
  instruction.grid = recipe_.operator_grid;
  if (code == recipe_.loss) instruction.integer.rounding = recipe_.loss_rounding;
  if (code == recipe_.update) instruction.integer.rounding = recipe_.gradient_rounding;
}

void ProgramWriter::EmitCopy(Part part, OpNode node, BufferIndex from, BufferIndex to) {
  node.gate = kNoGate;
  Emit(part, OpCode::kCopy, node, {from}, {to});
}

void ProgramWriter::EmitRescaled(Part part, OpCode code, bool rescale, const OpNode& node,
                                 std::vector<BufferIndex> inputs,
                                 std::vector<BufferIndex> outputs) {
  if (!rescale) return Emit(part, code, node, std::move(inputs), std::move(outputs));
  const Shape shape = program_.buffers[outputs[0]].shape;
  const BufferIndex accumulator = AddValue(DType::kInt32, shape, /*scaled=*/true);
  const BufferIndex result = std::exchange(outputs[0], accumulator);
  Emit(part, code, node, std::move(inputs), std::move(outputs));
  Emit(part, OpCode::kRescale, node, {accumulator}, {result});
}

}  // namespace runnel
