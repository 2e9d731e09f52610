#include "worker/stage/counts/work_energy.h"

namespace runnel {
namespace {

constexpr double kPico = 1e-12;

const Buffer& BufferOf(const Program& program, BufferIndex index) {
  return program.buffers[static_cast<size_t>(index)];
}

// Type that an instruction computes in: its first operand's.
const NumberType& TypeOf(const Program& program, const Instruction& instruction) {
  const std::vector<BufferIndex>& operands =
      instruction.inputs.empty() ? instruction.outputs : instruction.inputs;
  return runnel::TypeOf(operands.empty() ? DType::kInt8 : BufferOf(program, operands[0]).dtype);
}

double BytesPicojoules(const Buffer& buffer) {
  const int64_t bytes = buffer.bytes();
  return static_cast<double>(bytes) *
         (bytes <= kCacheBytes ? kCacheBytePicojoules : kMemoryBytePicojoules);
}

double Picojoules(const Program& program, const Instruction& instruction) {
  const NumberType& type = TypeOf(program, instruction);
  double sum = 0;
  for (const BufferIndex input : instruction.inputs)
    sum += BytesPicojoules(BufferOf(program, input));
  for (const BufferIndex output : instruction.outputs)
    sum += BytesPicojoules(BufferOf(program, output));
  if (const int64_t macs = MultiplyAdds(program, instruction); macs > 0) {
    return sum + static_cast<double>(macs) * type.mac_picojoules;
  }
  // All other instructions count about one addition for each output element.
  if (instruction.outputs.empty()) return sum;
  const int64_t elements = BufferOf(program, instruction.outputs[0]).shape.elements();
  return sum + static_cast<double>(elements) * type.add_picojoules;
}

}  // namespace

double InstructionJoules(const Program& program, const Instruction& instruction,
                         const ProcessorEnergy& processor) {
  if (processor.mac_picojoules <= 0)
    return Picojoules(program, instruction) * processor.share * kPico;
  return static_cast<double>(MultiplyAdds(program, instruction)) * processor.mac_picojoules * kPico;
}

double PartJoules(Part part, const Program& program, const Executable& executable,
                  const Backend& backend) {
  const auto& instructions = program.part(part);
  double joules = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Backend* processor = executable.processor_of(part, i);
    joules += InstructionJoules(program, instructions[i],
                                (processor == nullptr ? backend : *processor).energy());
  }
  return joules;
}

double ModelJoules(Part part, const Program& program) {
  double joules = 0;
  for (const Instruction& instruction : program.part(part))
    joules += InstructionJoules(program, instruction);
  return joules;
}

}  // namespace runnel
