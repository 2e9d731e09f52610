#include "kernels/backends/opencl/operands.h"

#include "kernels/backends/host/geometry.h"

namespace runnel::opencl {

static_assert(static_cast<int>(Rounding::kPseudoStochastic) == 0);
static_assert(static_cast<int>(Rounding::kHalfAway) == 1);
static_assert(static_cast<int>(Rounding::kStochastic) == 2);

KernelRule RuleOf(const Instruction& instruction, const StepContext& context) {
  const IntegerRule& rule = instruction.integer;
  const host::DrawStream stream = host::DrawStreamOf(instruction, context);
  const bool drops = instruction.code == OpCode::kInt8DropoutForward;
  return {static_cast<cl_int>(rule.rounding),
          rule.promote_one_to_two ? 1 : 0,
          rule.relu ? 1 : 0,
          rule.power_of_two_input ? 1 : 0,
          {stream.key[0], stream.key[1]},
          {stream.sequence[0], stream.sequence[1]},
          stream.threshold,
          drops && instruction.attributes.rate > 0 ? 1 : 0};
}

}  // namespace runnel::opencl
