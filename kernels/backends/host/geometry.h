#pragma once

// Of single instructions, for backends that run them on another processor: the
// sizes of their operators and the streams of their draws.

#include <array>
#include <cstdint>

#include "kernels/backends/backend.h"
#include "kernels/backends/host/call.h"
#include "kernels/ir/program.h"

namespace runnel::host {

// Input and output of the operator that an instruction belongs to, whichever of them its operands
// are; one element for instructions that have no use for sizes. A linear layer is a convolution of
// one position.
struct Geometry {
  Image x;
  Image y;
  Window window;  // 1 x 1 without one
  int64_t groups = 1;
};
Geometry GeometryOf(const Program& program, const Instruction& instruction);

// The stream of an instruction's draws, for code that computes blocks of them itself.
struct DrawStream {
  std::array<uint32_t, 2> key = {};
  std::array<uint32_t, 2> sequence = {};
  // Dropout keeps an element whose draw's top 24 bits reach this.
  uint32_t threshold = 0;
};
DrawStream DrawStreamOf(const Instruction& instruction, const StepContext& context);

}  // namespace runnel::host
