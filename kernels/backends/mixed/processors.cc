#include "kernels/backends/mixed/processors.h"

#include <algorithm>

namespace runnel {
namespace {

bool WritesFloats(const Program& program, const Instruction& instruction) {
  return std::any_of(instruction.outputs.begin(), instruction.outputs.end(),
                     [&](BufferIndex output) {
                       return IsFloat(program.buffers[static_cast<size_t>(output)].dtype);
                     });
}

}  // namespace

CountedWork CountWork(const Program& program, const Instruction& instruction) {
  CountedWork work;
  work.is_float = WritesFloats(program, instruction);
  for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
    for (BufferIndex index : *operands)
      work.bytes += static_cast<double>(program.buffers[static_cast<size_t>(index)].bytes());
  }
  work.macs = static_cast<double>(MultiplyAdds(program, instruction));
  return work;
}

bool IsExact(const Program& program) {
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (WritesFloats(program, instruction)) return false;
    }
  }
  return true;
}

double CountedSeconds(const NominalRates& rates, const CountedWork& work) {
  const double macs = work.is_float ? rates.float_macs_per_second : rates.int8_macs_per_second;
  return rates.instruction_seconds + work.macs / macs + work.bytes / rates.bytes_per_second;
}

}  // namespace runnel
