#include "kernels/backends/opencl/instructions.h"

#include <algorithm>
#include <utility>

#include "kernels/backends/opencl/product/product_plan.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/quantize.h"

namespace runnel::opencl {
namespace {

// The plan of a sum (AddPlan) and the maximum of a quantisation lie here.
constexpr int64_t kControlBytes = 64;

}  // namespace

struct Instructions::Row {
  OpCode code;
  absl::Status (Instructions::*enqueue)(const Instruction&, const StepContext&);
};

const Instructions::Row* Instructions::FindRow(OpCode code) {
  static constexpr Row rows[] = {
      {OpCode::kCopy, &Instructions::Copy},
      {OpCode::kQuantize, &Instructions::Quantize},
      {OpCode::kRescale, &Instructions::Rescale},
      {OpCode::kInt8ReluForward, &Instructions::Relu},
      {OpCode::kInt8ReluInputGradient, &Instructions::ReluGradient},
      {OpCode::kInt8DropoutForward, &Instructions::Dropout},
      {OpCode::kInt8DropoutInputGradient, &Instructions::Dropout},
      {OpCode::kInt8Add, &Instructions::Add},
      {OpCode::kInt8MaxPoolForward, &Instructions::MaxPool},
      {OpCode::kInt8MaxPoolInputGradient, &Instructions::MaxPoolGradient},
      {OpCode::kInt8AvgPoolForward, &Instructions::AvgPool},
      {OpCode::kInt8AvgPoolInputGradient, &Instructions::AvgPoolGradient},
      {OpCode::kInt8GlobalAvgPoolForward, &Instructions::AvgPool},
      {OpCode::kInt8GlobalAvgPoolInputGradient, &Instructions::AvgPoolGradient},
      {OpCode::kAddScaledGradient, &Instructions::AddGradient},
      {OpCode::kNitiUpdate, &Instructions::Update},
      {OpCode::kIntegerSoftmaxCrossEntropy, &Instructions::LossGradient},
  };
  for (const Row& row : rows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

bool HasKernels(OpCode code) { return Instructions::FindRow(code) != nullptr; }

absl::StatusOr<std::unique_ptr<Instructions>> Instructions::Create(
    const Operands& operands, std::shared_ptr<Session> session) {
  std::unique_ptr<Instructions> made(new Instructions(operands, session));
  RUNNEL_RETURN_IF_ERROR(session->Build(kIntegerElements));
  RUNNEL_ASSIGN_OR_RETURN(made->control_, CreateBuffer(*session, kControlBytes));
  RUNNEL_ASSIGN_OR_RETURN(made->targets_,
                          CreateBuffer(*session, kMaxGroups * int64_t{sizeof(cl_ulong)}));
  return made;
}

absl::Status Instructions::Enqueue(const Instruction& instruction, const StepContext& context) {
  return (this->*FindRow(instruction.code)->enqueue)(instruction, context);
}

absl::Status Instructions::Copy(const Instruction& instruction, const StepContext&) {
  const TensorRef x = operands_.In(instruction, 0), y = operands_.Out(instruction, 0);
  const auto bytes = static_cast<size_t>(operands_.buffer(instruction.outputs[0]).bytes());
  if (bytes == 0 || (x.area == y.area && x.data == y.data)) return absl::OkStatus();
  return session_->Check(clEnqueueCopyBuffer(session_->queue(), x.area, y.area, x.data, y.data,
                                             bytes, 0, nullptr, nullptr),
                         "clEnqueueCopyBuffer");
}

absl::Status Instructions::Quantize(const Instruction& instruction, const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  const TensorRef x = operands_.In(instruction, 0);
  const cl_uint zero = 0;
  RUNNEL_RETURN_IF_ERROR(
      session_->Check(clEnqueueFillBuffer(session_->queue(), control_.get(), &zero, sizeof zero, 0,
                                          sizeof zero, 0, nullptr, nullptr),
                      "clEnqueueFillBuffer"));
  RUNNEL_RETURN_IF_ERROR(Kernel("quantize_max")
                             .Tensor(x)
                             .Value(static_cast<cl_uint>(count))
                             .Memory(control_.get())
                             .Items(count));
  return Kernel("quantize")
      .Tensor(x)
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(RuleOf(instruction, context))
      .Memory(control_.get())
      .Items(count);
}

absl::Status Instructions::Rescale(const Instruction& instruction, const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  const bool has_mask = instruction.inputs.size() > 1;
  return Kernel("rescale")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.In(instruction, has_mask ? 1 : 0))
      .Value(Flag(has_mask))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(RuleOf(instruction, context))
      .Items(count / 4 + 1);
}

absl::Status Instructions::Relu(const Instruction& instruction, const StepContext&) {
  const int64_t count = operands_.Elements(instruction);
  return Kernel("relu")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Items(count);
}

absl::Status Instructions::ReluGradient(const Instruction& instruction, const StepContext&) {
  const int64_t count = operands_.Elements(instruction);
  return Kernel("relu_gradient")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.In(instruction, 1))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Items(count);
}

absl::Status Instructions::Dropout(const Instruction& instruction, const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  return Kernel("dropout")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(RuleOf(instruction, context))
      .Items(count / 4 + 1);
}

absl::Status Instructions::Add(const Instruction& instruction, const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  const auto elements = static_cast<cl_uint>(count);
  const TensorRef a = operands_.In(instruction, 0), b = operands_.In(instruction, 1);
  const KernelRule rule = RuleOf(instruction, context);
  cl_mem plan = control_.get();
  RUNNEL_RETURN_IF_ERROR(Kernel("add_begin").Tensor(a).Tensor(b).Memory(plan).Once());
  RUNNEL_RETURN_IF_ERROR(
      Kernel("add_maxima").Tensor(a).Tensor(b).Value(elements).Memory(plan).Items(count));
  RUNNEL_RETURN_IF_ERROR(Kernel("add_sums")
                             .Tensor(a)
                             .Tensor(b)
                             .Value(elements)
                             .Value(rule)
                             .Memory(plan)
                             .Items(count / 4 + 1));
  return Kernel("add_write")
      .Tensor(a)
      .Tensor(b)
      .Tensor(operands_.Out(instruction, 0))
      .Value(elements)
      .Value(rule)
      .Memory(plan)
      .Items(count / 4 + 1);
}

absl::Status Instructions::MaxPool(const Instruction& instruction, const StepContext&) {
  const bool has_taps = instruction.outputs.size() > 1;
  return Kernel("max_pool")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.Out(instruction, 0))
      .Tensor(operands_.Out(instruction, has_taps ? 1 : 0))
      .Value(Flag(has_taps))
      .Value(GeometryFor(operands_.program(), instruction))
      .Items(operands_.Elements(instruction));
}

absl::Status Instructions::MaxPoolGradient(const Instruction& instruction, const StepContext&) {
  return Kernel("max_pool_gradient")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.In(instruction, 1))
      .Tensor(operands_.Out(instruction, 0))
      .Value(GeometryFor(operands_.program(), instruction))
      .Items(operands_.Elements(instruction));
}

namespace {

// Exponent of a window's mean beyond that of its sum.
cl_int DividedExponent(const KernelGeometry& g) {
  return -CeilLog2(static_cast<float>(int64_t{g.kh} * g.kw));
}

}  // namespace

absl::Status Instructions::AvgPool(const Instruction& instruction, const StepContext&) {
  const KernelGeometry geometry = GeometryFor(operands_.program(), instruction);
  const TensorRef x = operands_.In(instruction, 0), y = operands_.Out(instruction, 0);
  RUNNEL_RETURN_IF_ERROR(Kernel("begin_sum")
                             .Tensor(y)
                             .Tensor(x)
                             .Tensor(x)
                             .Value(Flag(false))
                             .Value(DividedExponent(geometry))
                             .Once());
  return Kernel("avg_pool")
      .Tensor(x)
      .Tensor(y)
      .Value(geometry)
      .Items(operands_.Elements(instruction));
}

absl::Status Instructions::AvgPoolGradient(const Instruction& instruction, const StepContext&) {
  const KernelGeometry geometry = GeometryFor(operands_.program(), instruction);
  return Kernel("avg_pool_gradient")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.Out(instruction, 0))
      .Value(geometry)
      .Value(DividedExponent(geometry))
      .Items(operands_.Elements(instruction));
}

absl::Status Instructions::AddGradient(const Instruction& instruction, const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  const TensorRef from = operands_.In(instruction, 0), total = operands_.Out(instruction, 0);
  const cl_int first = Flag(!context.accumulate);
  const cl_int is_wide = Flag(operands_.buffer(instruction.inputs[0]).dtype == DType::kInt64);
  RUNNEL_RETURN_IF_ERROR(Kernel("add_gradient")
                             .Tensor(from)
                             .Value(is_wide)
                             .Tensor(total)
                             .Value(static_cast<cl_uint>(count))
                             .Value(first)
                             .Memory(targets_.get())
                             .Items(count));
  return Kernel("finish_gradient")
      .Tensor(from)
      .Tensor(total)
      .Value(first)
      .Memory(targets_.get())
      .Value(static_cast<cl_uint>(GroupsFor(count)))
      .Once();
}

absl::Status Instructions::Update(const Instruction& instruction, const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  const GradientBits& bits = context.gradient_bits;
  const cl_int kept = instruction.attributes.kind == OpKind::kLinear ? bits.linear : bits.conv;
  return Kernel("update")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.In(instruction, 1))
      .Value(Flag(operands_.buffer(instruction.inputs[1]).dtype == DType::kInt64))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(kept)
      .Value(RuleOf(instruction, context))
      .Items(count / 4 + 1);
}

absl::Status Instructions::LossGradient(const Instruction& instruction,
                                        const StepContext& context) {
  const Shape& shape = operands_.buffer(instruction.inputs[0]).shape;
  return Kernel("loss_gradient")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.In(instruction, 1))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_int>(shape[0]))
      .Value(static_cast<cl_int>(shape[1]))
      .Value(RuleOf(instruction, context))
      .Items(shape[0]);
}

}  // namespace runnel::opencl
