#include "kernels/opencl/instructions.h"

#include <algorithm>
#include <utility>

#include "kernels/host/geometry.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/quantize.h"

namespace runnel::opencl {
namespace {

// As kernels/opencl/cl/prelude.cl lays it out.
struct KernelRule {
  cl_int rounding, promote_one_to_two, relu, power_of_two;
  cl_uint key[2], sequence[2], threshold;
  cl_int added_exponent;
};
static_assert(static_cast<int>(Rounding::kPseudoStochastic) == 0);
static_assert(static_cast<int>(Rounding::kHalfAway) == 1);
static_assert(static_cast<int>(Rounding::kStochastic) == 2);

// The plan of a sum (AddPlan) and the maximum of a quantisation lie here.
constexpr int64_t kControlBytes = 64;

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

cl_int Flag(bool value) { return value ? 1 : 0; }

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
      {OpCode::kInt8ConvForward, &Instructions::Product},
      {OpCode::kInt8ConvInputGradient, &Instructions::Product},
      {OpCode::kInt8ConvWeightGradient, &Instructions::Product},
      {OpCode::kInt8LinearForward, &Instructions::Product},
      {OpCode::kInt8LinearInputGradient, &Instructions::Product},
      {OpCode::kInt8LinearWeightGradient, &Instructions::Product},
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
    const Program& program, const Staging& staging, std::shared_ptr<Session> session) {
  std::unique_ptr<Instructions> made(new Instructions(program, staging, session));
  int64_t slice_bytes = 0;
  RUNNEL_RETURN_IF_ERROR(session->Build(ProgramId::kElements));
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (!IsProduct(instruction.code)) continue;
      const ProductPlan plan = PlanProduct(program, instruction, session->device().compute_units);
      slice_bytes = std::max(slice_bytes, plan.slice_bytes());
      RUNNEL_RETURN_IF_ERROR(session->Build(plan.program));
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(made->control_, CreateBuffer(*session, kControlBytes));
  RUNNEL_ASSIGN_OR_RETURN(made->targets_,
                          CreateBuffer(*session, kMaxGroups * int64_t{sizeof(cl_ulong)}));
  RUNNEL_ASSIGN_OR_RETURN(made->slices_, CreateBuffer(*session, slice_bytes));
  return made;
}

absl::Status Instructions::Enqueue(const Instruction& instruction, const StepContext& context) {
  return (this->*FindRow(instruction.code)->enqueue)(instruction, context);
}

TensorRef Instructions::In(const Instruction& instruction, size_t i) const {
  return staging_.At(instruction.inputs[i]);
}

TensorRef Instructions::Out(const Instruction& instruction, size_t i) const {
  return staging_.At(instruction.outputs[i]);
}

int64_t Instructions::Elements(const Instruction& instruction) const {
  return BufferOf(instruction.outputs[0]).shape.elements();
}

absl::Status Instructions::Copy(const Instruction& instruction, const StepContext&) {
  const TensorRef x = In(instruction, 0), y = Out(instruction, 0);
  const auto bytes = static_cast<size_t>(BufferOf(instruction.outputs[0]).bytes());
  if (bytes == 0 || (x.area == y.area && x.data == y.data)) return absl::OkStatus();
  return session_->Check(clEnqueueCopyBuffer(session_->queue(), x.area, y.area, x.data, y.data,
                                             bytes, 0, nullptr, nullptr),
                         "clEnqueueCopyBuffer");
}

absl::Status Instructions::Quantize(const Instruction& instruction, const StepContext& context) {
  const int64_t count = Elements(instruction);
  const TensorRef x = In(instruction, 0);
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
      .Tensor(Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(RuleOf(instruction, context))
      .Memory(control_.get())
      .Items(count);
}

absl::Status Instructions::Rescale(const Instruction& instruction, const StepContext& context) {
  const int64_t count = Elements(instruction);
  const bool has_mask = instruction.inputs.size() > 1;
  return Kernel("rescale")
      .Tensor(In(instruction, 0))
      .Tensor(In(instruction, has_mask ? 1 : 0))
      .Value(Flag(has_mask))
      .Tensor(Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(RuleOf(instruction, context))
      .Items(count / 4 + 1);
}

absl::Status Instructions::Relu(const Instruction& instruction, const StepContext&) {
  const int64_t count = Elements(instruction);
  return Kernel("relu")
      .Tensor(In(instruction, 0))
      .Tensor(Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Items(count);
}

absl::Status Instructions::ReluGradient(const Instruction& instruction, const StepContext&) {
  const int64_t count = Elements(instruction);
  return Kernel("relu_gradient")
      .Tensor(In(instruction, 0))
      .Tensor(In(instruction, 1))
      .Tensor(Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Items(count);
}

absl::Status Instructions::Dropout(const Instruction& instruction, const StepContext& context) {
  const int64_t count = Elements(instruction);
  return Kernel("dropout")
      .Tensor(In(instruction, 0))
      .Tensor(Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(RuleOf(instruction, context))
      .Items(count / 4 + 1);
}

absl::Status Instructions::Add(const Instruction& instruction, const StepContext& context) {
  const int64_t count = Elements(instruction);
  const auto elements = static_cast<cl_uint>(count);
  const TensorRef a = In(instruction, 0), b = In(instruction, 1);
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
      .Tensor(Out(instruction, 0))
      .Value(elements)
      .Value(rule)
      .Memory(plan)
      .Items(count / 4 + 1);
}

absl::Status Instructions::MaxPool(const Instruction& instruction, const StepContext&) {
  const bool has_taps = instruction.outputs.size() > 1;
  return Kernel("max_pool")
      .Tensor(In(instruction, 0))
      .Tensor(Out(instruction, 0))
      .Tensor(Out(instruction, has_taps ? 1 : 0))
      .Value(Flag(has_taps))
      .Value(GeometryFor(program_, instruction))
      .Items(Elements(instruction));
}

absl::Status Instructions::MaxPoolGradient(const Instruction& instruction, const StepContext&) {
  return Kernel("max_pool_gradient")
      .Tensor(In(instruction, 0))
      .Tensor(In(instruction, 1))
      .Tensor(Out(instruction, 0))
      .Value(GeometryFor(program_, instruction))
      .Items(Elements(instruction));
}

namespace {

// What dividing by the taps of a window adds to the exponent.
cl_int DividedExponent(const KernelGeometry& g) {
  return -CeilLog2(static_cast<float>(int64_t{g.kh} * g.kw));
}

}  // namespace

absl::Status Instructions::AvgPool(const Instruction& instruction, const StepContext&) {
  const KernelGeometry geometry = GeometryFor(program_, instruction);
  const TensorRef x = In(instruction, 0), y = Out(instruction, 0);
  RUNNEL_RETURN_IF_ERROR(Kernel("begin_sum")
                             .Tensor(y)
                             .Tensor(x)
                             .Tensor(x)
                             .Value(Flag(false))
                             .Value(DividedExponent(geometry))
                             .Once());
  return Kernel("avg_pool").Tensor(x).Tensor(y).Value(geometry).Items(Elements(instruction));
}

absl::Status Instructions::AvgPoolGradient(const Instruction& instruction, const StepContext&) {
  const KernelGeometry geometry = GeometryFor(program_, instruction);
  return Kernel("avg_pool_gradient")
      .Tensor(In(instruction, 0))
      .Tensor(Out(instruction, 0))
      .Value(geometry)
      .Value(DividedExponent(geometry))
      .Items(Elements(instruction));
}

absl::Status Instructions::Product(const Instruction& instruction, const StepContext&) {
  const ProductPlan product = PlanProduct(program_, instruction, session_->device().compute_units);
  const KernelPlan& plan = product.plan;
  const TensorRef a = In(instruction, 0), b = In(instruction, 1), y = Out(instruction, 0);
  const cl_int added_exponent = 0;
  RUNNEL_RETURN_IF_ERROR(Kernel("begin_sum")
                             .Tensor(y)
                             .Tensor(a)
                             .Tensor(b)
                             .Value(Flag(true))
                             .Value(added_exponent)
                             .Once());
  const auto groups = [&](int64_t size) { return (size + product.tile - 1) / product.tile; };
  RUNNEL_RETURN_IF_ERROR(Launch(*session_, product.program, product.kernel)
                             .Tensor(a)
                             .Tensor(b)
                             .Tensor(product.is_sliced ? TensorRef{slices_.get()} : y)
                             .Value(Flag(!product.is_sliced))
                             .Value(product.geometry)
                             .Value(plan)
                             .Tiles(groups(plan.rows), groups(plan.columns),
                                    int64_t{product.geometry.groups} * plan.slices));
  if (!product.is_sliced) return absl::OkStatus();
  const bool is_wide = BufferOf(instruction.outputs[0]).dtype == DType::kInt64;
  RUNNEL_RETURN_IF_ERROR(Launch(*session_, product.program, "add_slices")
                             .Memory(slices_.get())
                             .Value(plan)
                             .Tensor(y)
                             .Value(Flag(is_wide))
                             .Memory(targets_.get())
                             .Items(plan.elements));
  return Launch(*session_, product.program, "finish_slices")
      .Tensor(y)
      .Memory(targets_.get())
      .Value(static_cast<cl_uint>(GroupsFor(plan.elements)))
      .Once();
}

absl::Status Instructions::AddGradient(const Instruction& instruction, const StepContext& context) {
  const int64_t count = Elements(instruction);
  const TensorRef from = In(instruction, 0), total = Out(instruction, 0);
  const cl_int first = Flag(!context.accumulate);
  const cl_int is_wide = Flag(BufferOf(instruction.inputs[0]).dtype == DType::kInt64);
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
  const int64_t count = Elements(instruction);
  const GradientBits& bits = context.gradient_bits;
  const cl_int kept = instruction.attributes.kind == OpKind::kLinear ? bits.linear : bits.conv;
  return Kernel("update")
      .Tensor(In(instruction, 0))
      .Tensor(In(instruction, 1))
      .Value(Flag(BufferOf(instruction.inputs[1]).dtype == DType::kInt64))
      .Tensor(Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(kept)
      .Value(RuleOf(instruction, context))
      .Items(count / 4 + 1);
}

absl::Status Instructions::LossGradient(const Instruction& instruction,
                                        const StepContext& context) {
  const Shape& shape = BufferOf(instruction.inputs[0]).shape;
  return Kernel("loss_gradient")
      .Tensor(In(instruction, 0))
      .Tensor(In(instruction, 1))
      .Tensor(Out(instruction, 0))
      .Value(static_cast<cl_int>(shape[0]))
      .Value(static_cast<cl_int>(shape[1]))
      .Value(RuleOf(instruction, context))
      .Items(shape[0]);
}

}  // namespace runnel::opencl
