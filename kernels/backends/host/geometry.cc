#include "kernels/backends/host/geometry.h"

#include <cmath>

#include "proto/base/random.h"

namespace runnel::host {
namespace {

// Which operands say how large the operator's input and output are: that input of the instruction,
// or its first output.
enum class Size : uint8_t { kIn0, kIn1, kOut };

struct Row {
  OpCode code;
  Size x;
  Size y;
};

constexpr Row kRows[] = {
    {OpCode::kInt8ConvForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8ConvInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8ConvWeightGradient, Size::kIn1, Size::kIn0},
    {OpCode::kInt8LinearForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8LinearInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8LinearWeightGradient, Size::kIn1, Size::kIn0},
    {OpCode::kInt8ConvForwardRescaled, Size::kIn0, Size::kOut},
    {OpCode::kInt8ConvInputGradientRescaled, Size::kOut, Size::kIn0},
    {OpCode::kInt8LinearForwardRescaled, Size::kIn0, Size::kOut},
    {OpCode::kInt8LinearInputGradientRescaled, Size::kOut, Size::kIn0},
    {OpCode::kInt8MaxPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8MaxPoolInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8AvgPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8AvgPoolInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8GlobalAvgPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8GlobalAvgPoolInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kIntegerSoftmaxCrossEntropy, Size::kIn0, Size::kIn0},
    {OpCode::kRequantizeCodes, Size::kIn0, Size::kOut},
    {OpCode::kPadCodes, Size::kIn0, Size::kOut},
    {OpCode::kCodesToChannelsFirst, Size::kIn0, Size::kOut},
    {OpCode::kCodesToChannelsLast, Size::kIn0, Size::kOut},
    {OpCode::kConvForward, Size::kIn0, Size::kOut},
    {OpCode::kConvInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kConvWeightGradient, Size::kIn1, Size::kIn0},
    {OpCode::kLinearForward, Size::kIn0, Size::kOut},
    {OpCode::kLinearInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kLinearWeightGradient, Size::kIn1, Size::kIn0},
    {OpCode::kMaxPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kMaxPoolInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kAvgPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kAvgPoolInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kGlobalAvgPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kGlobalAvgPoolInputGradient, Size::kOut, Size::kIn0},
};

const Shape& ShapeOf(const Program& program, const Instruction& instruction, Size size) {
  switch (size) {
    case Size::kIn0:
      return program.buffers[instruction.inputs[0]].shape;
    case Size::kIn1:
      return program.buffers[instruction.inputs[1]].shape;
    case Size::kOut:
      break;
  }
  return program.buffers[instruction.outputs[0]].shape;
}

}  // namespace

Geometry GeometryOf(const Program& program, const Instruction& instruction) {
  Geometry geometry;
  const OpSpec& op = instruction.attributes;
  for (const Row& row : kRows) {
    if (row.code != instruction.code) continue;
    const Shape& x = ShapeOf(program, instruction, row.x);
    geometry.x = ImageOf(x);
    geometry.y = ImageOf(ShapeOf(program, instruction, row.y));
    if (x.rank() > 2) geometry.window = WindowOf(op, x);
    if (op.kind == OpKind::kConv) geometry.groups = op.groups;
  }
  return geometry;
}

DrawStream DrawStreamOf(const Instruction& instruction, const StepContext& context) {
  const bool drops = instruction.code == OpCode::kInt8DropoutForward ||
                     instruction.code == OpCode::kInt8DropoutInputGradient ||
                     instruction.code == OpCode::kDropoutForward ||
                     instruction.code == OpCode::kDropoutInputGradient;
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
