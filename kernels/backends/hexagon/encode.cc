#include "kernels/backends/hexagon/encode.h"

namespace runnel::hexagon {
namespace {

struct Row {
  OpCode code;
  DspCode dsp;
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
    {OpCode::kInt8ConvForward, DspCode::kConvForward},
    {OpCode::kInt8ConvInputGradient, DspCode::kConvInputGradient},
    {OpCode::kInt8ConvWeightGradient, DspCode::kConvWeightGradient},
    {OpCode::kInt8LinearForward, DspCode::kLinearForward},
    {OpCode::kInt8LinearInputGradient, DspCode::kLinearInputGradient},
    {OpCode::kInt8LinearWeightGradient, DspCode::kLinearWeightGradient},
    {OpCode::kInt8ConvForwardRescaled, DspCode::kConvForward},
    {OpCode::kInt8ConvInputGradientRescaled, DspCode::kConvInputGradient},
    {OpCode::kInt8LinearForwardRescaled, DspCode::kLinearForward},
    {OpCode::kInt8LinearInputGradientRescaled, DspCode::kLinearInputGradient},
    {OpCode::kInt8MaxPoolForward, DspCode::kMaxPoolForward},
    {OpCode::kInt8MaxPoolInputGradient, DspCode::kMaxPoolInputGradient},
    {OpCode::kInt8AvgPoolForward, DspCode::kAvgPoolForward},
    {OpCode::kInt8AvgPoolInputGradient, DspCode::kAvgPoolInputGradient},
    {OpCode::kInt8GlobalAvgPoolForward, DspCode::kGlobalAvgPoolForward},
    {OpCode::kInt8GlobalAvgPoolInputGradient, DspCode::kGlobalAvgPoolInputGradient},
    {OpCode::kAddScaledGradient, DspCode::kAddScaledGradient},
    {OpCode::kNitiUpdate, DspCode::kUpdate},
    {OpCode::kIntegerSoftmaxCrossEntropy, DspCode::kLossGradient},
    {OpCode::kEncodeCodes, DspCode::kEncodeCodes},
    {OpCode::kRequantizeCodes, DspCode::kRequantizeCodes},
    {OpCode::kAddCodes, DspCode::kAddCodes},
    {OpCode::kPadCodes, DspCode::kPadCodes},
    {OpCode::kCodesToChannelsFirst, DspCode::kCodesToChannelsFirst},
    {OpCode::kCodesToChannelsLast, DspCode::kCodesToChannelsLast},
};

const Row* FindRow(OpCode code) {
  for (const Row& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

DspImages ImagesOf(const host::Image& image) {
  return {static_cast<int32_t>(image.n), static_cast<int32_t>(image.c),
          static_cast<int32_t>(image.h), static_cast<int32_t>(image.w)};
}

void EncodeDraws(const Instruction& instruction, const StepContext& context, DspOp* op) {
  const host::DrawStream stream = host::DrawStreamOf(instruction, context);
  for (int i = 0; i < 2; ++i) {
    op->key[i] = stream.key[i];
    op->sequence[i] = stream.sequence[i];
  }
  op->threshold = stream.threshold;
  const bool forward = instruction.code == OpCode::kInt8DropoutForward;
  op->added_exponent = forward && instruction.attributes.rate > 0 ? 1 : 0;
}

uint32_t FlagsOf(const Instruction& instruction, const StepContext& context, int64_t batch) {
  const IntegerRule& rule = instruction.integer;
  uint32_t flags = 0;
  if (rule.promote_one_to_two) flags |= kFlagPromoteOneToTwo;
  if (rule.relu) flags |= kFlagRelu;
  if (rule.power_of_two_input) flags |= kFlagPowerOfTwo;
  if (context.accumulate) flags |= kFlagAccumulate;
  if (TraitsOf(instruction.code).rescales) flags |= kFlagRescaled;
  if (instruction.split.ShiftsSlicesOf(batch)) flags |= kFlagShifted;
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

void EncodeSizes(const host::Geometry& geometry, DspOp* op) {
  op->x = ImagesOf(geometry.x);
  op->y = ImagesOf(geometry.y);
  const host::Window& w = geometry.window;
  op->window = {static_cast<int32_t>(w.kh), static_cast<int32_t>(w.kw), static_cast<int32_t>(w.sh),
                static_cast<int32_t>(w.sw), static_cast<int32_t>(w.ph), static_cast<int32_t>(w.pw)};
  op->groups = static_cast<int32_t>(geometry.groups);
}

DspOp Encode(const Program& program, const Instruction& instruction, const StepContext& context,
             OffsetFn offset_of, VersionFn version_of) {
  const Row& row = *FindRow(instruction.code);
  DspOp op;
  op.code = row.dsp;
  op.rounding = static_cast<uint32_t>(instruction.integer.rounding);
  op.flags = FlagsOf(instruction, context, program.batch);
  // Slices whose sums are added are left to the kernels, which go tile by tile over the batch.
  if ((op.flags & kFlagShifted) != 0) op.slice = static_cast<int32_t>(instruction.split.samples);
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
    // The place of weights in the stage's parameters is the same for all versions.
    if (tensor.version != 0) op.packed_key = static_cast<uint32_t>(buffer.offset_bytes) + 1;
    return tensor;
  };
  for (size_t i = 0; i < instruction.inputs.size() && i < 2; ++i) {
    op.in[i] = encode(instruction.inputs[i]);
  }
  const bool takes_third = TraitsOf(instruction.code).rescales ||
                           instruction.code == OpCode::kRequantizeCodes ||
                           instruction.code == OpCode::kAddCodes;
  if (instruction.inputs.size() > 2 && takes_third) {
    op.mask = encode(instruction.inputs[2]);
  }
  // A kept scale is the host's.
  const size_t outputs = TraitsOf(instruction.code).rescales ? 1 : instruction.outputs.size();
  for (size_t i = 0; i < outputs && i < 2; ++i) {
    const bool metrics = program.buffers[instruction.outputs[i]].storage == Storage::kMetrics;
    if (!metrics) op.out[i] = encode(instruction.outputs[i]);
  }
  EncodeSizes(host::GeometryOf(program, instruction), &op);
  EncodeDraws(instruction, context, &op);
  return op;
}

}  // namespace runnel::hexagon
