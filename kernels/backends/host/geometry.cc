#include "kernels/backends/host/geometry.h"

#include <cmath>

#include "proto/base/random.h"

namespace runnel::host {

Geometry GeometryOf(const Program& program, const Instruction& instruction) {
  Geometry geometry;
  const OperandShapes& shapes = TraitsOf(instruction.code).shapes;
  if (shapes.x == Operand::kNone) return geometry;
  const OpSpec& op = instruction.attributes;
  const Shape& x = ShapeOf(program, instruction, shapes.x);
  geometry.x = ImageOf(x);
  geometry.y = ImageOf(ShapeOf(program, instruction, shapes.y));
  if (x.rank() > 2) geometry.window = WindowOf(op, x);
  if (op.kind == OpKind::kConv) geometry.groups = op.groups;
  return geometry;
}

DrawStream DrawStreamOf(const Instruction& instruction, const StepContext& context) {
  const bool drops = TraitsOf(instruction.code).drops;
  const bool rounds_errors = instruction.code == OpCode::kFakeQuantizeError;
  const CounterRandom random(
      context.run_seed,
      drops           ? RandomPurpose::kDropout
      : rounds_errors ? RandomPurpose::kErrorRounding
                      : RandomPurpose::kRounding,
      static_cast<uint64_t>(instruction.layer) * kMaxOpsPerLayer + instruction.op,
      static_cast<uint64_t>(context.sequence.value()));
  DrawStream stream = {random.key(), random.sequence_words()};
  // A draw is kept if its top 24 bits over 2^24 are at least the rate.
  if (drops)
    stream.threshold = static_cast<uint32_t>(std::ceil(instruction.attributes.rate * 0x1p24));
  return stream;
}

}  // namespace runnel::host
