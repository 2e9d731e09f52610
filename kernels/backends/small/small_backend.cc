#include "kernels/backends/small/small_backend.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/backends/host/host_memory.h"
#include "kernels/backends/host/interpreter.h"
#include "kernels/backends/host/optimizer_update.h"
#include "kernels/backends/host/plain_kernels.h"
#include "kernels/backends/host/widened_call.h"
#include "kernels/backends/small/plane_kernels.h"
#include "kernels/backends/small/product_tuner.h"
#include "kernels/backends/small/products.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using host::KernelRow;
using host::Widened;
using small::HalfSums;
using small::NearMemory;
using small::ProductChoice;
using small::ProductShape;

// All but products (small::IsProduct).
constexpr KernelRow kKernels[] = {
    {OpCode::kEmbeddingForward, host::EmbeddingForward},
    {OpCode::kLayerNormForward, host::LayerNormForward},
    {OpCode::kLayerNormInputGradient, host::LayerNormInputGradient},
    {OpCode::kGeluForward, host::GeluForward},
    {OpCode::kGeluInputGradient, host::GeluInputGradient},
    {OpCode::kSigmoidForward, host::SigmoidForward},
    {OpCode::kSigmoidInputGradient, host::SigmoidInputGradient},
    {OpCode::kHardSigmoidForward, host::HardSigmoidForward},
    {OpCode::kHardSigmoidInputGradient, host::HardSigmoidInputGradient},
    {OpCode::kLeakyReluForward, host::LeakyReluForward},
    {OpCode::kLeakyReluInputGradient, host::LeakyReluInputGradient},
    {OpCode::kMultiply, host::Multiply},
    {OpCode::kFactorGradient, host::FactorGradient},
    {OpCode::kConcatForward, host::ConcatForward},
    {OpCode::kFirstChannels, host::FirstChannels},
    {OpCode::kLastChannels, host::LastChannels},
    {OpCode::kSliceForward, host::SliceForward},
    {OpCode::kSliceInputGradient, host::SliceInputGradient},
    {OpCode::kShuffleForward, host::ShuffleForward},
    {OpCode::kShuffleInputGradient, host::ShuffleInputGradient},
    {OpCode::kAttentionForward, host::AttentionForward},
    {OpCode::kAttentionInputGradient, host::AttentionInputGradient},
    {OpCode::kReluForward, host::ReluForward},
    {OpCode::kRelu6Forward, host::Relu6Forward},
    {OpCode::kDropoutForward, host::Dropout},
    {OpCode::kAddForward, host::Sum},
    {OpCode::kCopy, host::Copy},
    {OpCode::kSoftmaxCrossEntropy, host::SoftmaxCrossEntropy},
    {OpCode::kSoftmaxCrossEntropyEval, host::SoftmaxCrossEntropyEval},
    {OpCode::kReluInputGradient, host::ReluInputGradient},
    {OpCode::kRelu6InputGradient, host::Relu6InputGradient},
    {OpCode::kDropoutInputGradient, host::Dropout},
    {OpCode::kAccumulate, host::Sum},
    {OpCode::kEmbeddingWeightGradient, host::EmbeddingWeightGradient},
    {OpCode::kOptimizerUpdate, host::UpdateByOptimizer},
};

// Of programs of halves.
constexpr KernelRow kHalfKernels[] = {
    {OpCode::kEmbeddingForward, Widened<host::EmbeddingForward>},
    {OpCode::kSigmoidForward, Widened<host::SigmoidForward>},
    {OpCode::kSigmoidInputGradient, Widened<host::SigmoidInputGradient>},
    {OpCode::kHardSigmoidForward, Widened<host::HardSigmoidForward>},
    {OpCode::kHardSigmoidInputGradient, Widened<host::HardSigmoidInputGradient>},
    {OpCode::kLeakyReluForward, Widened<host::LeakyReluForward>},
    {OpCode::kLeakyReluInputGradient, Widened<host::LeakyReluInputGradient>},
    {OpCode::kMultiply, Widened<host::Multiply>},
    {OpCode::kFactorGradient, Widened<host::FactorGradient>},
    {OpCode::kConcatForward, Widened<host::ConcatForward>},
    {OpCode::kFirstChannels, Widened<host::FirstChannels>},
    {OpCode::kLastChannels, Widened<host::LastChannels>},
    {OpCode::kSliceForward, Widened<host::SliceForward>},
    {OpCode::kSliceInputGradient, Widened<host::SliceInputGradient>},
    {OpCode::kShuffleForward, Widened<host::ShuffleForward>},
    {OpCode::kShuffleInputGradient, Widened<host::ShuffleInputGradient>},
    {OpCode::kReluForward, Widened<host::ReluForward>},
    {OpCode::kRelu6Forward, Widened<host::Relu6Forward>},
    {OpCode::kDropoutForward, Widened<host::Dropout>},
    {OpCode::kAddForward, Widened<host::Sum>},
    {OpCode::kCopy, Widened<host::Copy>},
    {OpCode::kSoftmaxCrossEntropy, Widened<host::SoftmaxCrossEntropy>},
    {OpCode::kSoftmaxCrossEntropyEval, Widened<host::SoftmaxCrossEntropyEval>},
    {OpCode::kReluInputGradient, Widened<host::ReluInputGradient>},
    {OpCode::kRelu6InputGradient, Widened<host::Relu6InputGradient>},
    {OpCode::kDropoutInputGradient, Widened<host::Dropout>},
    {OpCode::kAccumulate, Widened<host::Sum>},
    {OpCode::kEmbeddingWeightGradient, Widened<host::EmbeddingWeightGradient>},
    {OpCode::kOptimizerUpdate, host::UpdateByOptimizer},
};

host::Kernel FindKernel(absl::Span<const KernelRow> rows, OpCode code) {
  for (const KernelRow& row : rows) {
    if (row.code == code) return row.kernel;
  }
  return nullptr;
}

struct Step {
  const Instruction* instruction = nullptr;
  host::Kernel kernel = nullptr;
  small::PlaneKernel plane_kernel = nullptr;  // both null: a product
  ProductShape shape = {};
  ProductChoice choice = {};

  bool is_product() const { return kernel == nullptr && plane_kernel == nullptr; }
};
using Steps = std::array<std::vector<Step>, kPartCount>;

class SmallExecutable final : public Executable {
 public:
  SmallExecutable(const Program& program, Steps steps, std::unique_ptr<Memory> l1)
      : program_(program), steps_(std::move(steps)), l1_(std::move(l1)) {}

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    for (const Step& step : steps_[static_cast<size_t>(part)]) {
      const Instruction& instruction = *step.instruction;
      RUNNEL_RETURN_IF_ERROR(host::CheckBound(program_, instruction, instruction.inputs, bindings));
      RUNNEL_RETURN_IF_ERROR(
          host::CheckBound(program_, instruction, instruction.outputs, bindings));
      const host::Call call(program_, instruction, context, bindings);
      const small::NearMemory l1 = {l1_->address(), l1_->bytes()};
      RUNNEL_RETURN_IF_ERROR(step.kernel != nullptr ? step.kernel(call)
                             : step.plane_kernel != nullptr
                                 ? step.plane_kernel(call, l1)
                                 : RunProduct(call, step.shape, step.choice, l1));
    }
    return absl::OkStatus();
  }
  int64_t memory_bytes() const override { return l1_->bytes(); }

 private:
  const Program& program_;
  const Steps steps_;
  const std::unique_ptr<Memory> l1_;
};

// small.kernels.
enum class Kernels : uint8_t { kTuned, kRule, kNaive };

class SmallBackend final : public Backend {
 public:
  SmallBackend(int64_t l1_bytes, Kernels kernels, HalfSums sums, double tune_seconds)
      : l1_bytes_(l1_bytes), kernels_(kernels), sums_(sums), tuner_(l1_bytes, tune_seconds, sums) {}

  // Recomputes: a batch norm's output is made again rather than kept. Rates: of a core of this host; of a microcontroller nothing is known.
  BackendTraits traits() const override {
    return {
        .name = "small",
        .numerics_class = absl::StrCat(small::kFuses ? "small/fused/rule1" : "small/rounded/rule1",
                                       sums_ == HalfSums::kOwn ? "/fp16_sums" : ""),
        .recomputes = true,
        .narrows_stash = true,
        .computes_halves = true,
        .keeps_values = true,
        .pads_by_side = true,
        .rates = {.float_macs_per_second = 3e9,
                  .bytes_per_second = 1e9,
                  .instruction_seconds = 1e-6,
                  .switch_cost = {5e-6, 0.2e-9}}};
  }
  std::string description() const override {
    return absl::StrCat("primitives for cores without much memory, tiles of ", l1_bytes_ / 1024,
                        " KiB, one thread");
  }
  Tuner* tuner() override { return kernels_ == Kernels::kTuned ? &tuner_ : nullptr; }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_RETURN_IF_ERROR(CheckWindows(traits(), program));
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> l1, AllocateHostMemory(l1_bytes_));
    RUNNEL_ASSIGN_OR_RETURN(Steps steps, StepsOf(program));
    if (kernels_ == Kernels::kTuned) {
      tuner_.Search(program, {l1->address(), l1->bytes()});
      for (std::vector<Step>& part : steps) {
        for (Step& step : part) {
          if (step.is_product()) step.choice = tuner_.ChoiceFor(step.shape);
        }
      }
    }
    return std::make_unique<SmallExecutable>(program, std::move(steps), std::move(l1));
  }

 private:
  absl::StatusOr<Steps> StepsOf(const Program& program) const {
    const bool is_half = IsHalf(program.values);
    const absl::Span<const KernelRow> rows =
        is_half ? absl::MakeConstSpan(kHalfKernels) : absl::MakeConstSpan(kKernels);
    Steps steps;
    for (size_t part = 0; part < steps.size(); ++part) {
      for (const Instruction& instruction : program.parts[part]) {
        Step step = {&instruction, FindKernel(rows, instruction.code),
                     small::FindPlaneKernel(instruction.code)};
        if (!step.is_product()) {
          steps[part].push_back(std::move(step));
          continue;
        }
        if (!small::IsProduct(instruction.code)) {
          return absl::UnimplementedError(absl::StrCat(
              "backend small has no ", Name(instruction.code), is_half ? " of halves" : "",
              " (layer ", instruction.layer, ", op ", instruction.op, "); take --backend cpu"));
        }
        step.shape = small::ShapeOf(program, instruction, sums_);
        step.choice = kernels_ == Kernels::kNaive ? small::NaiveFor(step.shape, l1_bytes_)
                                                  : small::RuleFor(step.shape, l1_bytes_);
        steps[part].push_back(std::move(step));
      }
    }
    return steps;
  }

  const int64_t l1_bytes_;
  const Kernels kernels_;
  const HalfSums sums_;
  small::ProductTuner tuner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeSmallBackend(const BackendSettings& settings) {
  constexpr int64_t kUsualKib = 64;
  constexpr double kUsualTuneSeconds = 2;
  int64_t kib = 0;
  if (!absl::SimpleAtoi(settings.options.Get("small", "l1_kb"), &kib)) kib = kUsualKib;
  const absl::string_view kernels = settings.options.Get("small", "kernels");
  return std::make_unique<SmallBackend>(
      kib * 1024,
      kernels == "naive"  ? Kernels::kNaive
      : kernels == "rule" ? Kernels::kRule
                          : Kernels::kTuned,
      settings.options.Get("small", "sums") == "fp16" ? HalfSums::kOwn : HalfSums::kFloat,
      settings.options.Seconds("small", "tune_s", kUsualTuneSeconds));
}

}  // namespace runnel
