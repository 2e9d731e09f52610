#include "worker/stage/work_energy.h"

namespace runnel {
namespace {

const Buffer& BufferOf(const Program& program, BufferIndex index) {
  return program.buffers[static_cast<size_t>(index)];
}

bool IsFloat(const Program& program, const Instruction& instruction) {
  const std::vector<BufferIndex>& operands =
      instruction.inputs.empty() ? instruction.outputs : instruction.inputs;
  if (operands.empty()) return false;
  const DType dtype = BufferOf(program, operands[0]).dtype;
  return dtype == DType::kFloat32 || dtype == DType::kFloat16;  // sums of halves are FP32
}

double BytesPicojoules(const Buffer& buffer) {
  const int64_t bytes = buffer.bytes();
  return static_cast<double>(bytes) *
         (bytes <= kCacheBytes ? kCacheBytePicojoules : kMemoryBytePicojoules);
}

double Picojoules(const Program& program, const Instruction& instruction) {
  const bool is_float = IsFloat(program, instruction);
  double sum = 0;
  for (const BufferIndex input : instruction.inputs)
    sum += BytesPicojoules(BufferOf(program, input));
  for (const BufferIndex output : instruction.outputs)
    sum += BytesPicojoules(BufferOf(program, output));
  if (const int64_t macs = MacsOf(instruction, program); macs > 0) {
    return sum + static_cast<double>(macs) * (is_float ? kFp32MacPicojoules : kInt8MacPicojoules);
  }
  // Of all others: about one addition for each element that comes out.
  if (instruction.outputs.empty()) return sum;
  const int64_t elements = BufferOf(program, instruction.outputs[0]).shape.elements();
  return sum + static_cast<double>(elements) * (is_float ? kFp32AddPicojoules : kIntAddPicojoules);
}

}  // namespace

// Each element of y is a sum over one output channel's weights, whichever of y, x and the weights
// is computed.
int64_t MacsOf(const Instruction& instruction, const Program& program) {
  BufferIndex y = 0;
  BufferIndex weight = 0;
  switch (instruction.code) {
    case OpCode::kConvForward:
    case OpCode::kLinearForward:
    case OpCode::kInt8ConvForward:
    case OpCode::kInt8LinearForward:
      y = instruction.outputs[0];
      weight = instruction.inputs[1];
      break;
    case OpCode::kConvInputGradient:
    case OpCode::kLinearInputGradient:
    case OpCode::kInt8ConvInputGradient:
    case OpCode::kInt8LinearInputGradient:
      y = instruction.inputs[0];
      weight = instruction.inputs[1];
      break;
    case OpCode::kConvWeightGradient:
    case OpCode::kLinearWeightGradient:
    case OpCode::kInt8ConvWeightGradient:
    case OpCode::kInt8LinearWeightGradient:
      y = instruction.inputs[0];
      weight = instruction.outputs[0];
      break;
    default:
      return 0;
  }
  const Shape& weights = BufferOf(program, weight).shape;
  return BufferOf(program, y).shape.elements() * (weights.elements() / weights[0]);
}

double ModelJoules(Part part, const Program& program) {
  double picojoules = 0;
  for (const Instruction& instruction : program.part(part))
    picojoules += Picojoules(program, instruction);
  return picojoules * 1e-12;
}

}  // namespace runnel
