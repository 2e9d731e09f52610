#include "kernels/backends/opencl/float_instructions.h"

#include "kernels/backends/opencl/product/product_plan.h"
#include "proto/base/status_macros.h"

namespace runnel::opencl {
struct FloatInstructions::Row {
  OpCode code;
  const char* kernel;
  absl::Status (FloatInstructions::*enqueue)(const Instruction&, const StepContext&);
};

const FloatInstructions::Row* FloatInstructions::FindRow(OpCode code) {
  using I = FloatInstructions;
  static constexpr Row rows[] = {
      {OpCode::kReluForward, "relu", &I::Map},
      {OpCode::kRelu6Forward, "relu6", &I::Map},
      {OpCode::kReluInputGradient, "relu_gradient", &I::Map},
      {OpCode::kRelu6InputGradient, "relu6_gradient", &I::Map},
      {OpCode::kAddForward, "add", &I::Map},
      {OpCode::kAccumulate, "add", &I::Map},
      {OpCode::kDropoutForward, "dropout", &I::Dropout},
      {OpCode::kDropoutInputGradient, "dropout", &I::Dropout},
      {OpCode::kMaxPoolForward, "max_pool", &I::MaxPool},
      {OpCode::kMaxPoolInputGradient, "max_pool_gradient", &I::Pool},
      {OpCode::kAvgPoolForward, "avg_pool", &I::Pool},
      {OpCode::kAvgPoolInputGradient, "avg_pool_gradient", &I::Pool},
      {OpCode::kGlobalAvgPoolForward, "avg_pool", &I::Pool},
      {OpCode::kGlobalAvgPoolInputGradient, "avg_pool_gradient", &I::Pool},
      {OpCode::kBatchNormForward, "batch_norm_forward", &I::BatchNormForward},
      {OpCode::kBatchNormEval, "batch_norm_apply", &I::BatchNormApply},
      {OpCode::kBatchNormAgain, "batch_norm_apply", &I::BatchNormApply},
      {OpCode::kBatchNormInputGradient, "batch_norm_gradient", &I::BatchNormGradient},
      {OpCode::kBatchNormWeightGradient, "store_gradient", &I::BatchNormWeightGradient},
      {OpCode::kSoftmaxCrossEntropy, "loss_gradient", &I::LossGradient},
      {OpCode::kOptimizerUpdate, nullptr, &I::Update},
  };
  for (const Row& row : rows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

bool HasFloatKernels(OpCode code) { return FloatInstructions::FindRow(code) != nullptr; }

absl::Status FloatInstructions::Enqueue(const Instruction& instruction,
                                        const StepContext& context) {
  return (this->*FindRow(instruction.code)->enqueue)(instruction, context);
}

Launch FloatInstructions::OnOperands(const Instruction& instruction) {
  return OnOperands(instruction, FindRow(instruction.code)->kernel);
}

Launch FloatInstructions::OnOperands(const Instruction& instruction, const char* kernel) {
  Launch launch(*session_, kFloatElements, kernel);
  for (size_t i = 0; i < instruction.inputs.size(); ++i)
    launch.Tensor(operands_.In(instruction, i));
  for (size_t i = 0; i < instruction.outputs.size(); ++i)
    launch.Tensor(operands_.Out(instruction, i));
  return launch;
}

absl::Status FloatInstructions::Map(const Instruction& instruction, const StepContext&) {
  const int64_t count = operands_.Elements(instruction);
  return OnOperands(instruction).Value(static_cast<cl_uint>(count)).Items(count);
}

absl::Status FloatInstructions::Dropout(const Instruction& instruction,
                                        const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  return OnOperands(instruction)
      .Value(static_cast<cl_uint>(count))
      .Value(RuleOf(instruction, context))
      .Value(static_cast<cl_float>(1 / (1 - instruction.attributes.rate)))
      .Items(count / 4 + 1);
}

absl::Status FloatInstructions::MaxPool(const Instruction& instruction, const StepContext&) {
  const bool has_taps = instruction.outputs.size() > 1;
  Launch launch = OnOperands(instruction);
  if (!has_taps) launch.Tensor(operands_.Out(instruction, 0));
  return launch.Value(Flag(has_taps))
      .Value(GeometryFor(operands_.program(), instruction))
      .Items(operands_.Elements(instruction));
}

absl::Status FloatInstructions::Pool(const Instruction& instruction, const StepContext&) {
  return OnOperands(instruction)
      .Value(GeometryFor(operands_.program(), instruction))
      .Items(operands_.Elements(instruction));
}

absl::Status FloatInstructions::BatchNormForward(const Instruction& instruction,
                                                 const StepContext&) {
  const KernelChannels s = ChannelsOf(operands_.buffer(instruction.inputs[0]).shape);
  return OnOperands(instruction)
      .Value(s)
      .Value(static_cast<cl_float>(instruction.attributes.epsilon))
      .Value(static_cast<cl_float>(instruction.attributes.momentum))
      .Groups(s.channels);
}

absl::Status FloatInstructions::BatchNormApply(const Instruction& instruction, const StepContext&) {
  const KernelChannels s = ChannelsOf(operands_.buffer(instruction.inputs[0]).shape);
  const bool has_stats = instruction.code == OpCode::kBatchNormAgain;
  Launch launch(*session_, kFloatElements, "batch_norm_apply");
  for (size_t i = 0; i < 4; ++i) launch.Tensor(operands_.In(instruction, i));
  return launch.Tensor(operands_.In(instruction, has_stats ? 3 : 4))
      .Value(Flag(has_stats))
      .Tensor(operands_.Out(instruction, 0))
      .Value(s)
      .Value(static_cast<cl_float>(instruction.attributes.epsilon))
      .Items(operands_.Elements(instruction));
}

absl::Status FloatInstructions::BatchNormGradient(const Instruction& instruction,
                                                  const StepContext&) {
  const KernelChannels s = ChannelsOf(operands_.buffer(instruction.inputs[0]).shape);
  return OnOperands(instruction).Value(s).Groups(s.channels);
}

absl::Status FloatInstructions::BatchNormWeightGradient(const Instruction& instruction,
                                                        const StepContext& context) {
  const int64_t channels = operands_.Elements(instruction);
  const cl_int adds = Flag(context.accumulate && !instruction.overwrites);
  for (size_t i = 0; i < 2; ++i) {
    RUNNEL_RETURN_IF_ERROR(Launch(*session_, kFloatElements, "store_gradient")
                               .Tensor(operands_.In(instruction, 0))
                               .Value(static_cast<cl_uint>(i * static_cast<size_t>(channels)))
                               .Tensor(operands_.Out(instruction, i))
                               .Value(static_cast<cl_uint>(channels))
                               .Value(adds)
                               .Items(channels));
  }
  return absl::OkStatus();
}

absl::Status FloatInstructions::LossGradient(const Instruction& instruction,
                                             const StepContext& context) {
  const Shape& shape = operands_.buffer(instruction.inputs[0]).shape;
  const double smoothing = context.label_smoothing;
  return Launch(*session_, kFloatElements, "loss_gradient")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.In(instruction, 1))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_int>(shape[0]))
      .Value(static_cast<cl_int>(shape[1]))
      .Value(static_cast<cl_float>(context.step_labels))
      .Value(static_cast<cl_float>(1 - smoothing))
      .Value(static_cast<cl_float>(smoothing / static_cast<double>(shape[1])))
      .Items(shape[0]);
}

absl::Status FloatInstructions::Update(const Instruction& instruction, const StepContext& context) {
  static constexpr const char* kKernels[] = {
#define RUNNEL_OPTIMIZER(Id, ...) #Id "Update",
#include "proto/base/training/optimizers.inc"
#undef RUNNEL_OPTIMIZER
  };
  const int64_t count = operands_.Elements(instruction);
  const OptimizerStep& step = *instruction.optimizer;
  return OnOperands(instruction, kKernels[step.row])
      .Value(static_cast<cl_uint>(count))
      .Value(step.scalars(context))
      .Items(count);
}

}  // namespace runnel::opencl
