#include "kernels/backends/opencl/code_instructions.h"

#include "kernels/ir/arithmetic/code_rule.h"

namespace runnel::opencl {
namespace {

// As in kernels/backends/opencl/cl/codes.cl.
struct KernelPlanes {
  cl_int c, inner, groups;
};
// As in kernels/backends/opencl/cl/prelude.cl.
constexpr cl_int kCodesIn = 1;
constexpr cl_int kSumsOut = 2;
constexpr cl_int kOneChannel = 4;
constexpr cl_int kRowSums = 8;

KernelPlanes PlanesOf(const Shape& shape) {
  return {static_cast<cl_int>(shape[1]),
          static_cast<cl_int>(shape.elements() / (shape[0] * shape[1])), 1};
}

// An instruction with its kernel's arguments.
struct Call {
  Session& session;
  const Operands& operands;
  const Instruction& instruction;

  Launch Kernel() const { return {session, kIntegerElements, Name(instruction.code).data()}; }
  const Buffer& in(size_t i) const { return operands.buffer(instruction.inputs[i]); }
  const Buffer& out() const { return operands.buffer(instruction.outputs[0]); }
  TensorRef x(size_t i) const { return operands.In(instruction, i); }
  TensorRef y() const { return operands.Out(instruction, 0); }
  cl_uint count() const { return static_cast<cl_uint>(out().shape.elements()); }
};

absl::Status Encode(const Call& call) {
  return call.Kernel()
      .Tensor(call.x(0))
      .Tensor(call.x(1))
      .Tensor(call.y())
      .Value(call.count())
      .Items(call.count());
}

absl::Status Requantize(const Call& call) {
  const bool has_rows = call.instruction.inputs.size() > 2;
  KernelPlanes planes = PlanesOf(call.out().shape);
  if (has_rows) planes.groups = static_cast<cl_int>(call.in(2).shape[1]);
  return call.Kernel()
      .Tensor(call.x(0))
      .Tensor(call.x(1))
      .Tensor(call.x(has_rows ? 2 : 0))
      .Tensor(call.y())
      .Value(call.count())
      .Value(planes)
      .Value(CodeFlagsOf(call.operands, call.instruction))
      .Items(call.count());
}

absl::Status Add(const Call& call) {
  return call.Kernel()
      .Tensor(call.x(0))
      .Tensor(call.x(1))
      .Tensor(call.x(2))
      .Tensor(call.y())
      .Value(call.count())
      .Items(call.count());
}

absl::Status Pad(const Call& call) {
  const Shape &x = call.in(0).shape, &y = call.out().shape;
  return call.Kernel()
      .Tensor(call.x(0))
      .Tensor(call.x(1))
      .Tensor(call.y())
      .Value(call.count())
      .Value(static_cast<cl_int>(x[2]))
      .Value(static_cast<cl_int>(x[3]))
      .Value(static_cast<cl_int>((y[2] - x[2]) / 2))
      .Value(static_cast<cl_int>((y[3] - x[3]) / 2))
      .Items(call.count());
}

absl::Status Reorder(const Call& call) {
  return call.Kernel()
      .Tensor(call.x(0))
      .Tensor(call.y())
      .Value(call.count())
      .Value(PlanesOf(call.out().shape))
      .Items(call.count());
}

struct Row {
  OpCode code;
  absl::Status (*enqueue)(const Call& call);
};
constexpr Row kRows[] = {{OpCode::kEncodeCodes, Encode},
                         {OpCode::kRequantizeCodes, Requantize},
                         {OpCode::kAddCodes, Add},
                         {OpCode::kPadCodes, Pad},
                         {OpCode::kCodesToChannelsFirst, Reorder},
                         {OpCode::kCodesToChannelsLast, Reorder}};

const Row* FindRow(OpCode code) {
  for (const Row& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

bool HasCodeKernels(OpCode code) { return FindRow(code) != nullptr; }

cl_int CodeFlagsOf(const Operands& operands, const Instruction& requantize) {
  const auto& inputs = requantize.inputs;
  const int64_t words = operands.buffer(inputs[1]).shape.elements();
  cl_int flags = inputs.size() > 2 ? kRowSums : 0;
  if (operands.buffer(inputs[0]).dtype == DType::kInt8) flags |= kCodesIn;
  if (operands.buffer(requantize.outputs[0]).dtype == DType::kInt32) flags |= kSumsOut;
  if (words == kCodeRuleWords + kCodeChannelWords) flags |= kOneChannel;
  return flags;
}

absl::Status EnqueueCodes(Session& session, const Operands& operands,
                          const Instruction& instruction) {
  return FindRow(instruction.code)->enqueue({session, operands, instruction});
}

}  // namespace runnel::opencl
