#include "kernels/ref/ref_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ref/ref_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr struct {
  OpCode code;
  ref::Kernel kernel;
} kKernels[] = {
    {OpCode::kConvForward, ref::ConvForward},
    {OpCode::kLinearForward, ref::LinearForward},
    {OpCode::kBatchNormForward, ref::BatchNormForward},
    {OpCode::kBatchNormEval, ref::BatchNormEval},
    {OpCode::kBatchNormAgain, ref::BatchNormAgain},
    {OpCode::kReluForward, ref::ReluForward},
    {OpCode::kRelu6Forward, ref::Relu6Forward},
    {OpCode::kDropoutForward, ref::Dropout},
    {OpCode::kMaxPoolForward, ref::MaxPoolForward},
    {OpCode::kAvgPoolForward, ref::AvgPoolForward},
    {OpCode::kGlobalAvgPoolForward, ref::GlobalAvgPoolForward},
    {OpCode::kAddForward, ref::Sum},
    {OpCode::kCopy, ref::Copy},
    {OpCode::kSoftmaxCrossEntropy, ref::SoftmaxCrossEntropy},
    {OpCode::kSoftmaxCrossEntropyEval, ref::SoftmaxCrossEntropyEval},
    {OpCode::kConvInputGradient, ref::ConvInputGradient},
    {OpCode::kLinearInputGradient, ref::LinearInputGradient},
    {OpCode::kBatchNormInputGradient, ref::BatchNormInputGradient},
    {OpCode::kReluInputGradient, ref::ReluInputGradient},
    {OpCode::kRelu6InputGradient, ref::Relu6InputGradient},
    {OpCode::kDropoutInputGradient, ref::Dropout},
    {OpCode::kMaxPoolInputGradient, ref::MaxPoolInputGradient},
    {OpCode::kAvgPoolInputGradient, ref::AvgPoolInputGradient},
    {OpCode::kGlobalAvgPoolInputGradient, ref::GlobalAvgPoolInputGradient},
    {OpCode::kAccumulate, ref::Sum},
    {OpCode::kConvWeightGradient, ref::ConvWeightGradient},
    {OpCode::kLinearWeightGradient, ref::LinearWeightGradient},
    {OpCode::kBatchNormWeightGradient, ref::BatchNormWeightGradient},
    {OpCode::kSgdUpdate, ref::SgdUpdate},
    {OpCode::kQuantize, ref::Quantize},
    {OpCode::kInt8ConvForward, ref::Int8ProductForward},
    {OpCode::kInt8LinearForward, ref::Int8ProductForward},
    {OpCode::kRescale, ref::Rescale},
    {OpCode::kInt8ReluForward, ref::Int8ReluForward},
    {OpCode::kInt8DropoutForward, ref::Int8DropoutForward},
    {OpCode::kInt8MaxPoolForward, ref::Int8MaxPoolForward},
    {OpCode::kInt8AvgPoolForward, ref::Int8AvgPoolForward},
    {OpCode::kInt8GlobalAvgPoolForward, ref::Int8GlobalAvgPoolForward},
    {OpCode::kInt8Add, ref::Int8Add},
    {OpCode::kInt8ConvInputGradient, ref::Int8ProductInputGradient},
    {OpCode::kInt8LinearInputGradient, ref::Int8ProductInputGradient},
    {OpCode::kInt8ReluInputGradient, ref::Int8ReluInputGradient},
    {OpCode::kInt8DropoutInputGradient, ref::Int8DropoutInputGradient},
    {OpCode::kInt8MaxPoolInputGradient, ref::Int8MaxPoolInputGradient},
    {OpCode::kInt8AvgPoolInputGradient, ref::Int8AvgPoolInputGradient},
    {OpCode::kInt8GlobalAvgPoolInputGradient, ref::Int8GlobalAvgPoolInputGradient},
    {OpCode::kInt8ConvWeightGradient, ref::Int8ProductWeightGradient},
    {OpCode::kInt8LinearWeightGradient, ref::Int8ProductWeightGradient},
    {OpCode::kAddScaledGradient, ref::AddScaledGradient},
    {OpCode::kNitiUpdate, ref::NitiUpdate},
    {OpCode::kIntegerSoftmaxCrossEntropy, ref::IntegerSoftmaxCrossEntropy},
    {OpCode::kIntegerSoftmaxCrossEntropyEval, ref::IntegerSoftmaxCrossEntropyEval},
};

ref::Kernel FindKernel(OpCode code) {
  for (const auto& row : kKernels) {
    if (row.code == code) return row.kernel;
  }
  return nullptr;
}

class RefExecutable : public Executable {
 public:
  explicit RefExecutable(const Program& program) : program_(program) {}

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    for (const Instruction& instruction : program_.part(part)) {
      RUNNEL_RETURN_IF_ERROR(CheckBound(instruction, bindings));
      const ref::Call call(program_, instruction, context, bindings);
      RUNNEL_RETURN_IF_ERROR(FindKernel(instruction.code)(call));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckBound(const Instruction& instruction, const Bindings& bindings) const {
    for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
      for (BufferIndex index : *operands) {
        if (bindings[program_.buffers[index].storage] != nullptr) continue;
        return absl::FailedPreconditionError(absl::StrCat(
            Name(instruction.code), " of layer ", instruction.layer, ", op ", instruction.op,
            ": storage ", Name(program_.buffers[index].storage), " is not bound"));
      }
    }
    return absl::OkStatus();
  }

  const Program& program_;
};

class RefBackend : public Backend {
 public:
  absl::string_view name() const override { return "ref"; }
  std::string numerics_class() const override { return "ref"; }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    for (const std::vector<Instruction>& part : program.parts) {
      for (const Instruction& instruction : part) {
        if (FindKernel(instruction.code) != nullptr) continue;
        return absl::UnimplementedError(absl::StrCat("ref has no ", Name(instruction.code)));
      }
    }
    return std::make_unique<RefExecutable>(program);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeRefBackend(int /*threads*/) {
  return std::make_unique<RefBackend>();
}

}  // namespace runnel
