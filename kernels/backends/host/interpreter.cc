#include "kernels/backends/host/interpreter.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/host/live_samples.h"
#include "proto/base/status_macros.h"

namespace runnel::host {
namespace {

struct Step {
  const Instruction* instruction;
  Kernel kernel;
};
using Steps = std::array<std::vector<Step>, kPartCount>;

class Interpreter final : public Executable {
 public:
  Interpreter(const Program& program, Steps steps)
      : program_(program), steps_(std::move(steps)), live_(program) {
    if (!live_.has_gates()) return;
    for (size_t part = 0; part < kPartCount; ++part) {
      for (const Step& step : steps_[part]) alone_[part].push_back({step.instruction});
    }
  }

  absl::Status CheckGates() const {
    for (const auto& steps : alone_) RUNNEL_RETURN_IF_ERROR(LiveSamples::Check(program_, steps));
    return absl::OkStatus();
  }

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    const std::vector<Step>& steps = steps_[static_cast<int>(part)];
    if (live_.has_gates()) {
      return live_.Run(alone_[static_cast<int>(part)], context, bindings,
                       [&](size_t step, const StepContext& of_step) {
                         return RunStep(steps[step], of_step, bindings);
                       });
    }
    for (const Step& step : steps) RUNNEL_RETURN_IF_ERROR(RunStep(step, context, bindings));
    return absl::OkStatus();
  }

 private:
  absl::Status RunStep(const Step& step, const StepContext& context,
                       const Bindings& bindings) const {
    const Instruction& instruction = *step.instruction;
    RUNNEL_RETURN_IF_ERROR(CheckBound(program_, instruction, instruction.inputs, bindings));
    RUNNEL_RETURN_IF_ERROR(CheckBound(program_, instruction, instruction.outputs, bindings));
    return step.kernel(Call(live_.program(), instruction, context, bindings));
  }

  const Program& program_;
  const Steps steps_;
  LiveSamples live_;
  std::array<std::vector<LiveSamples::Step>, kPartCount> alone_;  // of a program with gates
};

Kernel FindKernel(absl::Span<const KernelRow> rows, OpCode code) {
  for (const KernelRow& row : rows) {
    if (row.code == code) return row.kernel;
  }
  return nullptr;
}

}  // namespace

absl::Status CheckBound(const Program& program, const Instruction& instruction,
                        const std::vector<BufferIndex>& operands, const Bindings& bindings) {
  for (BufferIndex index : operands) {
    const Storage storage = program.buffers[index].storage;
    if (bindings[storage] != nullptr) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(Name(instruction.code), " of layer ", instruction.layer, ", op ",
                     instruction.op, ": storage ", Name(storage), " is not bound"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Executable>> Interpret(const Program& program,
                                                      absl::string_view backend,
                                                      absl::Span<const KernelRow> rows) {
  Steps steps;
  for (int part = 0; part < kPartCount; ++part) {
    for (const Instruction& instruction : program.parts[part]) {
      const Kernel kernel = FindKernel(rows, instruction.code);
      if (kernel == nullptr) {
        return absl::UnimplementedError(
            absl::StrCat("backend ", backend, " has no ", Name(instruction.code), " (layer ",
                         instruction.layer, ", op ", instruction.op, "); take --backend cpu"));
      }
      steps[part].push_back({&instruction, kernel});
    }
  }
  auto interpreter = std::make_unique<Interpreter>(program, std::move(steps));
  RUNNEL_RETURN_IF_ERROR(interpreter->CheckGates());
  return interpreter;
}

}  // namespace runnel::host
