#pragma once

// Runs the instructions of programs with gates (Instruction::gate) on the samples that do not skip.
// Buffers that lie packed get the count of these samples while such instructions run; products and
// grids of gates with options of several bits run once for each option, on its rows (RunsByOption). No
// step mixes such instructions with others where a gate has several options that do not skip.

#include <array>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/arithmetic/sample_choice.h"
#include "kernels/ir/program.h"

namespace runnel::host {

class LiveSamples {
 public:
  // Instructions of one step of an executable, which have one gate.
  using Step = std::vector<const Instruction*>;
  using RunStep = absl::FunctionRef<absl::Status(size_t step, const StepContext& context)>;

  // Of a program and its steps, where a gate has several options that do not skip. Internal: a step
  // mixes instructions that run by option with others; or two values of a group of steps that run by
  // option share memory, so that the first option would write over what the next one reads
  // (KeepByOption of kernels/ir/passes keeps them apart).
  static absl::Status Check(const Program& program, absl::Span<const Step> steps);

  // A program without gates is not copied.
  explicit LiveSamples(const Program& program);

  bool has_gates() const { return has_gates_; }
  // The program as the step that runs has to see it: with the shapes and places of the samples that
  // it computes.
  const Program& program() const { return has_gates_ ? live_ : program_; }

  // Runs steps in their order, and counts them in StepContext::work. `steps` are of a program
  // that has_gates.
  absl::Status Run(absl::Span<const Step> steps, const StepContext& context,
                   const Bindings& bindings, RunStep run);

 private:
  struct Gate {
    OpSpec spec;
    std::vector<BufferIndex> packed;  // buffers
  };

  // Runs a group of steps with one gate.
  absl::Status RunGroup(absl::Span<const Step> steps, size_t first, const StepContext& context,
                        const Bindings& bindings, RunStep run);
  absl::Status RunOn(const OptionRows& rows, absl::Span<const Step> steps, size_t first,
                     const StepContext& context, RunStep run);
  void Focus(const Gate& gate, int64_t first, int64_t count);
  void ZeroGradients(const Step& step, const Bindings& bindings) const;
  void Count(const Step& step, const StepContext& context) const;

  const Program& program_;
  bool has_gates_ = false;
  Program live_;
  std::vector<Gate> gates_;  // by buffer of the choice; without options: no choice
};

}  // namespace runnel::host
