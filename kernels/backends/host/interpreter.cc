#include "kernels/backends/host/interpreter.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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
  Interpreter(const Program& program, Steps steps) : program_(program), steps_(std::move(steps)) {}

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    for (const Step& step : steps_[static_cast<int>(part)]) {
      const Instruction& instruction = *step.instruction;
      RUNNEL_RETURN_IF_ERROR(CheckBound(program_, instruction, instruction.inputs, bindings));
      RUNNEL_RETURN_IF_ERROR(CheckBound(program_, instruction, instruction.outputs, bindings));
      RUNNEL_RETURN_IF_ERROR(step.kernel(Call(program_, instruction, context, bindings)));
    }
    return absl::OkStatus();
  }

 private:
  const Program& program_;
  const Steps steps_;
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
  return std::make_unique<Interpreter>(program, std::move(steps));
}

}  // namespace runnel::host
