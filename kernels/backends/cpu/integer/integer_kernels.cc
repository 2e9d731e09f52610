#include "kernels/backends/cpu/integer/integer_kernels.h"

namespace runnel::cpu {

absl::Span<const KernelRow> IntegerKernels() {
  constexpr LayoutRule kLast = LayoutRule::kChannelsLast, kSame = LayoutRule::kSame;
  static constexpr KernelRow kRows[] = {
      {OpCode::kQuantize, kSame, RunQuantize},
      {OpCode::kInt8ConvForward, kLast, RunProductForward},
      {OpCode::kInt8LinearForward, kLast, RunProductForward},
      {OpCode::kInt8ConvForwardRescaled, kLast, RunRescaledForward},
      {OpCode::kInt8LinearForwardRescaled, kLast, RunRescaledForward},
      {OpCode::kInt8ConvInputGradientRescaled, kLast, RunRescaledInputGradient},
      {OpCode::kInt8LinearInputGradientRescaled, kLast, RunRescaledInputGradient},
      {OpCode::kRescale, kSame, RunRescale},
      {OpCode::kInt8ReluForward, kSame, RunInt8Relu},
      {OpCode::kInt8DropoutForward, kSame, RunInt8Dropout},
      {OpCode::kInt8MaxPoolForward, kLast, RunInt8MaxPool},
      {OpCode::kInt8AvgPoolForward, kLast, RunInt8AvgPool},
      {OpCode::kInt8GlobalAvgPoolForward, kLast, RunInt8GlobalAvgPool},
      {OpCode::kInt8Add, kSame, RunInt8Add},
      {OpCode::kInt8ConvInputGradient, kLast, RunProductInputGradient},
      {OpCode::kInt8LinearInputGradient, kLast, RunProductInputGradient},
      {OpCode::kInt8ReluInputGradient, kSame, RunInt8ReluGradient},
      {OpCode::kInt8DropoutInputGradient, kSame, RunInt8Dropout},
      {OpCode::kInt8MaxPoolInputGradient, kLast, RunInt8MaxPoolGradient},
      {OpCode::kInt8AvgPoolInputGradient, kLast, RunInt8AvgPoolGradient},
      {OpCode::kInt8GlobalAvgPoolInputGradient, kLast, RunInt8GlobalAvgPoolGradient},
      {OpCode::kInt8ConvWeightGradient, kLast, RunProductWeightGradient},
      {OpCode::kInt8LinearWeightGradient, kLast, RunProductWeightGradient},
      {OpCode::kAddScaledGradient, kSame, RunAddScaledGradient},
      {OpCode::kNitiUpdate, kSame, RunNitiUpdate},
      {OpCode::kIntegerSoftmaxCrossEntropy, kSame, RunIntegerLoss},
      {OpCode::kIntegerSoftmaxCrossEntropyEval, kSame, RunIntegerLoss},
  };
  return kRows;
}

}  // namespace runnel::cpu
