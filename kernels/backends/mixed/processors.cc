#include "kernels/backends/mixed/processors.h"

#include <algorithm>

namespace runnel {
namespace {

// cpu and torch: a core with AVX-512. hexagon: 10^9 packets a second with 1.6 products of 128 bytes
// in each, as the emulator counts (tests/bench/DSP.md), and the switch of the paper's phone. opencl, where
// it is not timed: a small GPU.
constexpr ProcessorRates kRates[] = {
    {"cpu", true, 150e9, 60e9, 5e9, 2e-6, {5e-6, 0.2e-9}, false, true},
    {"ref", true, 1e9, 1e9, 0.5e9, 1e-6, {5e-6, 0.2e-9}, true},
    {"torch", true, 10e9, 50e9, 4e9, 10e-6, {10e-6, 0.2e-9}},
    {"opencl", true, 170e9, 50e9, 20e9, 20e-6, {200e-6, 0.2e-9}, true, false, true},
    {"hexagon", false, 200e9, 1e9, 10e9, 5e-6, {25e-3, 0.2e-9}, true},
};
constexpr ProcessorRates kOther = {"", true, 1e9, 1e9, 1e9, 10e-6, {1e-3, 1e-9}};

bool WritesFloats(const Program& program, const Instruction& instruction) {
  return std::any_of(instruction.outputs.begin(), instruction.outputs.end(),
                     [&](BufferIndex output) {
                       const DType dtype = program.buffers[static_cast<size_t>(output)].dtype;
                       return dtype == DType::kFloat32 || dtype == DType::kFloat16;
                     });
}

}  // namespace

const ProcessorRates& RatesOf(absl::string_view backend) {
  for (const ProcessorRates& row : kRates) {
    if (row.backend == backend) return row;
  }
  return kOther;
}

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

double CountedSeconds(const ProcessorRates& rates, const CountedWork& work) {
  const double macs = work.is_float ? rates.float_macs_per_second : rates.int8_macs_per_second;
  return rates.instruction_seconds + work.macs / macs + work.bytes / rates.bytes_per_second;
}

}  // namespace runnel
