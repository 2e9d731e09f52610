#include "kernels/backends/opencl/grid_instructions.h"

#include <algorithm>
#include <utility>

#include "kernels/ir/arithmetic/fake_quantize.h"
#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

// Layout of kernels/backends/opencl/cl/grids.cl.
struct KernelWeights {
  cl_uint largest, first;
};
struct KernelErrors {
  cl_uint largest;
  cl_float scale, step;
};
constexpr int64_t kPartialBytes = 2 * sizeof(cl_float);

// A sample's errors are read by groups of so many elements at least.
constexpr int64_t kErrorsOfGroup = 16 * kGroup;

cl_float UnitOf(int steps) { return 1.0f / static_cast<float>(steps); }

int64_t SamplesOf(const Buffer& errors) { return errors.shape[0]; }

bool HasTanhGrid(const GridRule& grid) {
  return grid.bits < 32 && grid.weights == WeightGrid::kTanhMax;
}

}  // namespace

struct GridInstructions::Row {
  OpCode code;
  absl::Status (GridInstructions::*enqueue)(const Instruction&, const StepContext&);
};

const GridInstructions::Row* GridInstructions::FindRow(OpCode code) {
  using I = GridInstructions;
  static constexpr Row rows[] = {
      {OpCode::kFakeQuantizeWeight, &I::Weight},
      {OpCode::kFakeQuantizeWeightGradient, &I::WeightGradient},
      {OpCode::kFakeQuantizeActivation, &I::Activation},
      {OpCode::kFakeQuantizeActivationGradient, &I::ActivationGradient},
      {OpCode::kFakeQuantizeError, &I::Error},
  };
  for (const Row& row : rows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

bool HasGridKernels(OpCode code) { return GridInstructions::FindRow(code) != nullptr; }

absl::StatusOr<std::unique_ptr<GridInstructions>> GridInstructions::Create(
    const Operands& operands, std::shared_ptr<Session> session) {
  std::unique_ptr<GridInstructions> made(new GridInstructions(operands, session));
  RUNNEL_RETURN_IF_ERROR(session->Build(kFloatElements));
  int64_t samples = 1;
  for (const auto& part : operands.program().parts) {
    for (const Instruction& instruction : part) {
      if (instruction.code != OpCode::kFakeQuantizeError) continue;
      samples = std::max(samples, SamplesOf(operands.buffer(instruction.inputs[0])));
    }
  }
  static_assert(sizeof(KernelErrors) >= sizeof(KernelWeights));
  RUNNEL_ASSIGN_OR_RETURN(made->found_,
                          CreateBuffer(*session, samples * int64_t{sizeof(KernelErrors)}));
  RUNNEL_ASSIGN_OR_RETURN(made->partials_, CreateBuffer(*session, kMaxGroups * kPartialBytes));
  return made;
}

absl::Status GridInstructions::Enqueue(const Instruction& instruction, const StepContext& context) {
  return (this->*FindRow(instruction.code)->enqueue)(instruction, context);
}

absl::Status GridInstructions::FindLargest(const TensorRef& weights, int64_t count) {
  const KernelWeights none = {0, ~cl_uint{0}};
  RUNNEL_RETURN_IF_ERROR(
      session_->Check(clEnqueueFillBuffer(session_->queue(), found_.get(), &none, sizeof none, 0,
                                          sizeof none, 0, nullptr, nullptr),
                      "clEnqueueFillBuffer"));
  return Kernel("largest_weight")
      .Tensor(weights)
      .Value(static_cast<cl_uint>(count))
      .Memory(found_.get())
      .Items(count);
}

absl::Status GridInstructions::Weight(const Instruction& instruction, const StepContext& context) {
  if (!HasTanhGrid(instruction.grid)) return SignMean(instruction);
  const TensorRef w = operands_.In(instruction, 0);
  const int64_t count = operands_.Elements(instruction);
  const int steps = GridSteps(instruction.grid.BitsAt(context.grid_bits));
  RUNNEL_RETURN_IF_ERROR(FindLargest(w, count));
  return Kernel("tanh_grid")
      .Tensor(w)
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(static_cast<cl_float>(steps))
      .Value(UnitOf(steps))
      .Memory(found_.get())
      .Items(count);
}

absl::Status GridInstructions::SignMean(const Instruction& instruction) {
  const TensorRef w = operands_.In(instruction, 0);
  const int64_t count = operands_.Elements(instruction);
  RUNNEL_RETURN_IF_ERROR(Kernel("weight_magnitudes")
                             .Tensor(w)
                             .Value(static_cast<cl_uint>(count))
                             .Memory(partials_.get())
                             .Items(count));
  return Kernel("sign_mean")
      .Tensor(w)
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Memory(partials_.get())
      .Value(static_cast<cl_uint>(GroupsFor(count)))
      .Items(count);
}

absl::Status GridInstructions::WeightGradient(const Instruction& instruction,
                                              const StepContext& context) {
  const TensorRef dv = operands_.In(instruction, 0), w = operands_.In(instruction, 1);
  const TensorRef dw = operands_.Out(instruction, 0);
  const int64_t elements = operands_.Elements(instruction);
  const auto count = static_cast<cl_uint>(elements);
  const cl_int adds = Flag(context.accumulate && !instruction.overwrites);
  if (!HasTanhGrid(instruction.grid)) {
    return Kernel("store_gradient")
        .Tensor(dv)
        .Value(cl_uint{0})
        .Tensor(dw)
        .Value(count)
        .Value(adds)
        .Items(elements);
  }
  RUNNEL_RETURN_IF_ERROR(FindLargest(w, elements));
  RUNNEL_RETURN_IF_ERROR(Kernel("tanh_sums")
                             .Tensor(dv)
                             .Tensor(w)
                             .Value(count)
                             .Memory(found_.get())
                             .Memory(partials_.get())
                             .Items(elements));
  return Kernel("tanh_gradient")
      .Tensor(dv)
      .Tensor(w)
      .Tensor(dw)
      .Value(count)
      .Value(adds)
      .Memory(found_.get())
      .Memory(partials_.get())
      .Value(static_cast<cl_uint>(GroupsFor(elements)))
      .Items(elements);
}

absl::Status GridInstructions::Activation(const Instruction& instruction,
                                          const StepContext& context) {
  const int64_t count = operands_.Elements(instruction);
  const int steps = GridSteps(instruction.grid.BitsAt(context.grid_bits));
  return Kernel("unit_grid")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(static_cast<cl_float>(steps))
      .Value(UnitOf(steps))
      .Items(count);
}

absl::Status GridInstructions::ActivationGradient(const Instruction& instruction,
                                                  const StepContext&) {
  const int64_t count = operands_.Elements(instruction);
  return Kernel("unit_gradient")
      .Tensor(operands_.In(instruction, 0))
      .Tensor(operands_.In(instruction, 1))
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Items(count);
}

absl::Status GridInstructions::Error(const Instruction& instruction, const StepContext& context) {
  const TensorRef dy = operands_.In(instruction, 0);
  const int64_t count = operands_.Elements(instruction);
  const int64_t samples = SamplesOf(operands_.buffer(instruction.inputs[0]));
  const int64_t size = count / samples;
  const int64_t groups = (size + kErrorsOfGroup - 1) / kErrorsOfGroup;
  const auto steps = static_cast<cl_int>(GridSteps(instruction.grid.BitsAt(context.grid_bits)));
  const cl_uint zero = 0;
  RUNNEL_RETURN_IF_ERROR(session_->Check(
      clEnqueueFillBuffer(session_->queue(), found_.get(), &zero, sizeof zero, 0,
                          static_cast<size_t>(samples) * sizeof(KernelErrors), 0, nullptr, nullptr),
      "clEnqueueFillBuffer"));
  RUNNEL_RETURN_IF_ERROR(Kernel("largest_errors")
                             .Tensor(dy)
                             .Value(static_cast<cl_uint>(size))
                             .Value(static_cast<cl_uint>(groups))
                             .Memory(found_.get())
                             .Groups(samples * groups));
  RUNNEL_RETURN_IF_ERROR(Kernel("error_grids")
                             .Memory(found_.get())
                             .Value(static_cast<cl_uint>(samples))
                             .Value(steps)
                             .Items(samples));
  return Kernel("error_codes")
      .Tensor(dy)
      .Tensor(operands_.Out(instruction, 0))
      .Value(static_cast<cl_uint>(count))
      .Value(static_cast<cl_uint>(size))
      .Value(steps)
      .Value(RuleOf(instruction, context))
      .Memory(found_.get())
      .Items(count / 4 + 1);
}

}  // namespace runnel::opencl
