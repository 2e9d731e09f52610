#include "kernels/hexagon/encode.h"

#include <cmath>

#include "kernels/host/call.h"
#include "proto/base/random.h"

namespace runnel::hexagon {
namespace {

// Which operands say how large the operator's input and output are: 0, 1: that input of the
// instruction; kOut: its first output; kNone: sizes do not matter.
enum class Size : uint8_t { kNone, kIn0, kIn1, kOut };

struct Row {
  OpCode code;
  DspCode dsp;
  Size x = Size::kNone;
  Size y = Size::kNone;
};

constexpr Row kRows[] = {
    {OpCode::kCopy, DspCode::kCopy},
    {OpCode::kQuantize, DspCode::kQuantize},
    {OpCode::kRescale, DspCode::kRescale},
    {OpCode::kInt8ReluForward, DspCode::kRelu},
    {OpCode::kInt8ReluInputGradient, DspCode::kReluGradient},
    {OpCode::kInt8DropoutForward, DspCode::kDropout},
    {OpCode::kInt8DropoutInputGradient, DspCode::kDropout},
    {OpCode::kInt8Add, DspCode::kAdd},
    {OpCode::kInt8ConvForward, DspCode::kConvForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8ConvInputGradient, DspCode::kConvInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8ConvWeightGradient, DspCode::kConvWeightGradient, Size::kIn1, Size::kIn0},
    {OpCode::kInt8LinearForward, DspCode::kLinearForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8LinearInputGradient, DspCode::kLinearInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8LinearWeightGradient, DspCode::kLinearWeightGradient, Size::kIn1, Size::kIn0},
    {OpCode::kInt8MaxPoolForward, DspCode::kMaxPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8MaxPoolInputGradient, DspCode::kMaxPoolInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8AvgPoolForward, DspCode::kAvgPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8AvgPoolInputGradient, DspCode::kAvgPoolInputGradient, Size::kOut, Size::kIn0},
    {OpCode::kInt8GlobalAvgPoolForward, DspCode::kGlobalAvgPoolForward, Size::kIn0, Size::kOut},
    {OpCode::kInt8GlobalAvgPoolInputGradient, DspCode::kGlobalAvgPoolInputGradient, Size::kOut,
     Size::kIn0},
    {OpCode::kAddScaledGradient, DspCode::kAddScaledGradient},
    {OpCode::kNitiUpdate, DspCode::kUpdate},
    {OpCode::kIntegerSoftmaxCrossEntropy, DspCode::kLossGradient, Size::kIn0, Size::kIn0},
};

const Row* FindRow(OpCode code) {
  for (const Row& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

const Buffer& BufferOf(const Program& program, const Instruction& instruction, Size size) {
  switch (size) {
    case Size::kIn0:
      return program.buffers[instruction.inputs[0]];
    case Size::kIn1:
      return program.buffers[instruction.inputs[1]];
    default:
      return program.buffers[instruction.outputs[0]];
  }
}

DspImages ImagesOf(const Shape& shape) {
  const host::Image image = host::ImageOf(shape);
  return {static_cast<int32_t>(image.n), static_cast<int32_t>(image.c),
          static_cast<int32_t>(image.h), static_cast<int32_t>(image.w)};
}

DspWindow WindowOf(const OpSpec& op, const Shape& x) {
  const host::Window w = host::WindowOf(op, x);
  return {static_cast<int32_t>(w.kh), static_cast<int32_t>(w.kw), static_cast<int32_t>(w.sh),
          static_cast<int32_t>(w.sw), static_cast<int32_t>(w.ph), static_cast<int32_t>(w.pw)};
}

void EncodeSizes(const Program& program, const Instruction& instruction, const Row& row,
                 DspOp* op) {
  if (row.x == Size::kNone) return;
  const Shape& x = BufferOf(program, instruction, row.x).shape;
  op->x = ImagesOf(x);
  op->y = ImagesOf(BufferOf(program, instruction, row.y).shape);
  if (x.rank() > 2) op->window = WindowOf(instruction.attributes, x);
  if (instruction.attributes.kind == OpKind::kConv) {
    op->groups = static_cast<int32_t>(instruction.attributes.groups);
  }
}

void EncodeDraws(const Instruction& instruction, const StepContext& context, DspOp* op) {
  const bool drops = op->code == DspCode::kDropout;
  const CounterRandom random(
      context.run_seed, drops ? RandomPurpose::kDropout : RandomPurpose::kRounding,
      static_cast<uint64_t>(instruction.layer) * kMaxOpsPerLayer + instruction.op,
      static_cast<uint64_t>(context.sequence.value()));
  for (int i = 0; i < 2; ++i) {
    op->key[i] = random.key()[i];
    op->sequence[i] = random.sequence_words()[i];
  }
  if (!drops) return;
  // A draw is kept if its top 24 bits over 2^24 are at least the rate.
  op->threshold = static_cast<uint32_t>(std::ceil(instruction.attributes.rate * 0x1p24));
  const bool forward = instruction.code == OpCode::kInt8DropoutForward;
  op->added_exponent = forward && instruction.attributes.rate > 0 ? 1 : 0;
}

uint32_t FlagsOf(const Instruction& instruction, const StepContext& context) {
  const IntegerRule& rule = instruction.integer;
  uint32_t flags = 0;
  if (rule.promote_one_to_two) flags |= kFlagPromoteOneToTwo;
  if (rule.relu) flags |= kFlagRelu;
  if (rule.power_of_two_input) flags |= kFlagPowerOfTwo;
  if (context.accumulate) flags |= kFlagAccumulate;
  return flags;
}

static_assert(static_cast<uint32_t>(Rounding::kPseudoStochastic) == kRoundPseudoStochastic);
static_assert(static_cast<uint32_t>(Rounding::kHalfAway) == kRoundHalfAway);
static_assert(static_cast<uint32_t>(Rounding::kStochastic) == kRoundStochastic);
static_assert(sizeof(ScaleTail) == kTailBytes);

}  // namespace

std::optional<DspCode> DspCodeOf(OpCode code) {
  const Row* row = FindRow(code);
  if (row == nullptr) return std::nullopt;
  return row->dsp;
}

bool HasHostPart(OpCode code) {
  return code == OpCode::kIntegerSoftmaxCrossEntropy ||
         code == OpCode::kIntegerSoftmaxCrossEntropyEval;
}

DspOp Encode(const Program& program, const Instruction& instruction, const StepContext& context,
             OffsetFn offset_of, VersionFn version_of) {
  const Row& row = *FindRow(instruction.code);
  DspOp op;
  op.code = row.dsp;
  op.rounding = static_cast<uint32_t>(instruction.integer.rounding);
  op.flags = FlagsOf(instruction, context);
  op.gradient_bits = instruction.attributes.kind == OpKind::kLinear ? context.gradient_bits.linear
                                                                    : context.gradient_bits.conv;
  const auto encode = [&](BufferIndex index) {
    const Buffer& buffer = program.buffers[index];
    DspTensor tensor;
    tensor.data = offset_of(index);
    if (buffer.scaled) {
      tensor.tail = tensor.data + static_cast<uint32_t>(buffer.bytes()) - kTailBytes;
    }
    tensor.elements = static_cast<uint32_t>(buffer.shape.elements());
    tensor.bytes = static_cast<uint32_t>(SizeOf(buffer.dtype));
    tensor.version = buffer.storage == Storage::kParameters ? version_of(index) : 0;
    return tensor;
  };
  for (size_t i = 0; i < instruction.inputs.size() && i < 2; ++i) {
    op.in[i] = encode(instruction.inputs[i]);
  }
  for (size_t i = 0; i < instruction.outputs.size() && i < 2; ++i) {
    const bool metrics = program.buffers[instruction.outputs[i]].storage == Storage::kMetrics;
    if (!metrics) op.out[i] = encode(instruction.outputs[i]);
  }
  EncodeSizes(program, instruction, row, &op);
  EncodeDraws(instruction, context, &op);
  return op;
}

}  // namespace runnel::hexagon
