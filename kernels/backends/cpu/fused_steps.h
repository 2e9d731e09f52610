#pragma once

// Groups instructions of a program that run together. A convolution takes along the batch
// normalisation and activation that make its input, the statistics of its output, and in the
// backward both of its gradients with those of the batch normalisation behind it. Values and the
// order of sums are those of the single instructions: the bytes are the same.

#include <array>
#include <vector>

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/layout_plan.h"
#include "kernels/ir/program.h"

namespace runnel::cpu {

struct StepPart {
  PlannedInstruction planned;
  std::vector<BufferIndex> extra_inputs;  // behind the instruction's own
  bool sums_done = false;                 // Call
  bool keep_output = true;                // Call
};

// Instructions that one kernel runs, in the program's order. Operands are turned only in steps of
// one instruction and where a step's first input or last output is one.
struct Step {
  std::vector<StepPart> parts;
  Kernel run = nullptr;
};

using StepPlan = std::array<std::vector<Step>, kPartCount>;

// One step an instruction.
StepPlan PlainSteps(const LayoutPlan& layout);
// The fewest steps that the program's memory allows: nothing that is read late may be overwritten.
StepPlan FuseSteps(const Program& program, const LayoutPlan& layout);

}  // namespace runnel::cpu
