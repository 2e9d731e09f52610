#include "kernels/backends/mixed/processors.h"

#include <algorithm>

#include "kernels/ir/arithmetic/code_grid.h"

namespace runnel {
namespace {

bool WritesFloats(const Program& program, const Instruction& instruction) {
  return std::any_of(instruction.outputs.begin(), instruction.outputs.end(),
                     [&](BufferIndex output) {
                       return IsFloat(program.buffers[static_cast<size_t>(output)].dtype);
                     });
}

// Integer products that an instruction is made of, for each of its multiply-adds; 0: it multiplies
// floats, or nothing.
int IntegerProducts(const Instruction& instruction) {
  switch (instruction.code) {
    case OpCode::kCodesForward:
      return 1;
    case OpCode::kCodesInputGradient:
    case OpCode::kCodesWeightGradient:
      return IsWide(instruction.grid.bits) ? 2 : 1;
    default:
      return 0;
  }
}

}  // namespace

CountedWork CountWork(const Program& program, const Instruction& instruction) {
  CountedWork work;
  const int integer_products = IntegerProducts(instruction);
  work.is_float = integer_products == 0 && WritesFloats(program, instruction);
  for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
    for (BufferIndex index : *operands)
      work.bytes += static_cast<double>(program.buffers[static_cast<size_t>(index)].bytes());
  }
  work.macs =
      static_cast<double>(MultiplyAdds(program, instruction)) * std::max(1, integer_products);
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
