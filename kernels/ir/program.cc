#include "kernels/ir/program.h"

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

struct CodeRow {
  OpCode code;
  const char* name;
  bool in_place;
};

constexpr CodeRow kCodes[] = {
    {OpCode::kConvForward, "conv_forward", false},
    {OpCode::kLinearForward, "linear_forward", false},
    {OpCode::kBatchNormForward, "batch_norm_forward", false},
    {OpCode::kBatchNormEval, "batch_norm_eval", false},
    {OpCode::kBatchNormAgain, "batch_norm_again", false},
    {OpCode::kReluForward, "relu_forward", true},
    {OpCode::kRelu6Forward, "relu6_forward", true},
    {OpCode::kDropoutForward, "dropout_forward", true},
    {OpCode::kMaxPoolForward, "max_pool_forward", false},
    {OpCode::kAvgPoolForward, "avg_pool_forward", false},
    {OpCode::kGlobalAvgPoolForward, "global_avg_pool_forward", false},
    {OpCode::kAddForward, "add_forward", true},
    {OpCode::kCopy, "copy", false},
    {OpCode::kSoftmaxCrossEntropy, "softmax_cross_entropy", false},
    {OpCode::kSoftmaxCrossEntropyEval, "softmax_cross_entropy_eval", false},
    {OpCode::kConvInputGradient, "conv_input_gradient", false},
    {OpCode::kLinearInputGradient, "linear_input_gradient", false},
    {OpCode::kBatchNormInputGradient, "batch_norm_input_gradient", false},
    {OpCode::kReluInputGradient, "relu_input_gradient", true},
    {OpCode::kRelu6InputGradient, "relu6_input_gradient", true},
    {OpCode::kDropoutInputGradient, "dropout_input_gradient", true},
    {OpCode::kMaxPoolInputGradient, "max_pool_input_gradient", false},
    {OpCode::kAvgPoolInputGradient, "avg_pool_input_gradient", false},
    {OpCode::kGlobalAvgPoolInputGradient, "global_avg_pool_input_gradient", false},
    {OpCode::kAccumulate, "accumulate", true},
    {OpCode::kConvWeightGradient, "conv_weight_gradient", false},
    {OpCode::kLinearWeightGradient, "linear_weight_gradient", false},
    {OpCode::kBatchNormWeightGradient, "batch_norm_weight_gradient", false},
    {OpCode::kFakeQuantizeWeight, "fake_quantize_weight", false},
    {OpCode::kFakeQuantizeWeightGradient, "fake_quantize_weight_gradient", false},
    {OpCode::kFakeQuantizeActivation, "fake_quantize_activation", true},
    {OpCode::kFakeQuantizeActivationGradient, "fake_quantize_activation_gradient", true},
    {OpCode::kFakeQuantizeError, "fake_quantize_error", true},
    {OpCode::kSgdUpdate, "sgd_update", false},
    {OpCode::kQuantize, "quantize", false},
    {OpCode::kInt8ConvForward, "int8_conv_forward", false},
    {OpCode::kInt8ConvForwardRescaled, "int8_conv_forward_rescaled", false},
    {OpCode::kInt8LinearForwardRescaled, "int8_linear_forward_rescaled", false},
    {OpCode::kInt8ConvInputGradientRescaled, "int8_conv_input_gradient_rescaled", false},
    {OpCode::kInt8LinearInputGradientRescaled, "int8_linear_input_gradient_rescaled", false},
    {OpCode::kInt8LinearForward, "int8_linear_forward", false},
    {OpCode::kRescale, "rescale", false},
    {OpCode::kInt8ReluForward, "int8_relu_forward", true},
    {OpCode::kInt8DropoutForward, "int8_dropout_forward", true},
    {OpCode::kInt8MaxPoolForward, "int8_max_pool_forward", false},
    {OpCode::kInt8AvgPoolForward, "int8_avg_pool_forward", false},
    {OpCode::kInt8GlobalAvgPoolForward, "int8_global_avg_pool_forward", false},
    {OpCode::kInt8Add, "int8_add", false},
    {OpCode::kInt8ConvInputGradient, "int8_conv_input_gradient", false},
    {OpCode::kInt8LinearInputGradient, "int8_linear_input_gradient", false},
    {OpCode::kInt8ReluInputGradient, "int8_relu_input_gradient", true},
    {OpCode::kInt8DropoutInputGradient, "int8_dropout_input_gradient", true},
    {OpCode::kInt8MaxPoolInputGradient, "int8_max_pool_input_gradient", false},
    {OpCode::kInt8AvgPoolInputGradient, "int8_avg_pool_input_gradient", false},
    {OpCode::kInt8GlobalAvgPoolInputGradient, "int8_global_avg_pool_input_gradient", false},
    {OpCode::kInt8ConvWeightGradient, "int8_conv_weight_gradient", false},
    {OpCode::kInt8LinearWeightGradient, "int8_linear_weight_gradient", false},
    {OpCode::kAddScaledGradient, "add_scaled_gradient", false},
    {OpCode::kNitiUpdate, "niti_update", false},
    {OpCode::kEncodeCodes, "encode_codes", false},
    {OpCode::kRequantizeCodes, "requantize_codes", false},
    {OpCode::kAddCodes, "add_codes", false},
    {OpCode::kPadCodes, "pad_codes", false},
    {OpCode::kCodesToChannelsFirst, "codes_to_channels_first", false},
    {OpCode::kCodesToChannelsLast, "codes_to_channels_last", false},
    {OpCode::kIntegerSoftmaxCrossEntropy, "integer_softmax_cross_entropy", false},
    {OpCode::kIntegerSoftmaxCrossEntropyEval, "integer_softmax_cross_entropy_eval", false},
};

const CodeRow* FindCode(OpCode code) {
  for (const CodeRow& row : kCodes) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

constexpr const char* kStorageNames[kStorageCount] = {
    "input",      "output",    "output_gradient", "input_gradient", "labels", "metrics", "params",
    "new_params", "gradients", "momentum",        "statistics",     "stash",  "scratch",
};

constexpr const char* kPartNames[kPartCount] = {"forward", "forward_eval", "input_gradient",
                                                "weight_gradient", "update"};

void AppendOperands(const Program& program, const std::vector<BufferIndex>& operands,
                    std::string* text) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const Buffer& buffer = program.buffers[operands[i]];
    absl::StrAppend(text, i == 0 ? " " : ", ", Name(buffer.storage), "+", buffer.offset_bytes, ":",
                    Name(buffer.dtype), buffer.rounded ? "~" : "", ":", buffer.shape.ToString());
  }
}

}  // namespace

bool AllowsInPlace(OpCode code) {
  const CodeRow* row = FindCode(code);
  return row != nullptr && row->in_place;
}

absl::string_view Name(OpCode code) {
  const CodeRow* row = FindCode(code);
  return row != nullptr ? row->name : "?";
}

absl::string_view Name(Storage storage) { return kStorageNames[static_cast<int>(storage)]; }

std::string ToString(const Program& program) {
  std::string text = absl::StrCat("layers ", program.first_layer, "..", program.last_layer,
                                  ", batch ", program.batch, "\n");
  for (int part = 0; part < kPartCount; ++part) {
    absl::StrAppend(&text, kPartNames[part], ":\n");
    for (const Instruction& instruction : program.parts[part]) {
      absl::StrAppend(&text, "  ", instruction.layer, ".", instruction.op, " ",
                      Name(instruction.code));
      AppendOperands(program, instruction.inputs, &text);
      absl::StrAppend(&text, " ->");
      AppendOperands(program, instruction.outputs, &text);
      const BatchSplit& split = instruction.split;
      if (split.SliceOf(program.batch) < program.batch)
        absl::StrAppend(&text, split.shifted ? ", shifted slices of " : ", slices of ",
                        split.samples);
      absl::StrAppend(&text, "\n");
    }
  }
  absl::StrAppend(&text, "parameters ", program.state.parameter_bytes, " B, statistics ",
                  program.state.statistic_bytes, " B, stash ", program.stash_bytes, " B, scratch ",
                  program.scratch_bytes, " B\n");
  return text;
}

}  // namespace runnel
