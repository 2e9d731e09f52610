#include "kernels/backends/cpu/cpu_backend.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/codes/code_kernels.h"
#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/summation_rule.h"
#include "kernels/backends/cpu/fused_steps.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/grids/grid_loops.h"
#include "kernels/backends/cpu/half/half_kernels.h"
#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "kernels/backends/cpu/kept_weights.h"
#include "kernels/backends/cpu/layout_plan.h"
#include "kernels/backends/cpu/lone_kernels.h"
#include "kernels/backends/host/live_samples.h"
#include "proto/base/host/kernel_rows.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using cpu::Call;
using cpu::KeptWeights;
using cpu::KernelRow;
using cpu::LayoutPlan;
using cpu::Machine;
using cpu::Operand;
using cpu::PlannedInstruction;
using cpu::PreparedProducts;
using cpu::Step;
using cpu::StepPart;
using cpu::StepPlan;
using cpu::ThreadPool;
using cpu::Turn;
using cpu::WeightKeeper;
using cpu::Workspace;

const KernelRow* FindKernelOf(absl::Span<const KernelRow> rows, OpCode code) {
  for (const KernelRow& row : rows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

const KernelRow* FindHalfKernel(OpCode code) { return FindKernelOf(half::KernelRows(), code); }

const KernelRow* FindKernel(OpCode code) {
  for (absl::Span<const KernelRow> rows :
       {fp32::KernelRows(), cpu::IntegerKernels(), cpu::CodeKernels(), cpu::GridKernels()}) {
    if (const KernelRow* row = FindKernelOf(rows, code); row != nullptr) return row;
  }
  return nullptr;
}

// What a name after "cpu:" allows. Best first.
struct InstructionSet {
  const char* name;
  Isa isa;
};
constexpr InstructionSet kInstructionSets[] = {
#if defined(__x86_64__)
    {"avx512_vnni", Isa::kAvx512Vnni}, {"avx512", Isa::kAvx512},
    {"avx_vnni", Isa::kAvxVnni},       {"avx2", Isa::kAvx2},
#elif defined(__aarch64__)
    {"i8mm", Isa::kNeonI8mm},
    {"dotprod", Isa::kNeonDotprod},
    {"neon", Isa::kNeon},
#endif
    {"portable", Isa::kPortable},
};

// Without pool and workspace, which are an executable's.
Machine MachineOf(const InstructionSet& set) {
  Machine machine;
  machine.fp32 = &BestRowWithin(fp32::SupportedKernels(), set.isa);
  machine.half = &half::LoopsFor(set.isa);
  machine.int8 = &BestRowWithin(cpu::SupportedInt8Kernels(), set.isa);
  machine.integer = &cpu::IntegerLoopsFor(set.isa);
  machine.codes = &cpu::CodeLoopsFor(set.isa);
  machine.grids = &cpu::GridLoopsFor(set.isa);
  return machine;
}

// The products of a program's constants. bytes: of them, 0 where another program had them.
struct PreparedHere {
  std::shared_ptr<const PreparedProducts> products;
  int64_t bytes = 0;
};

class CpuExecutable : public Executable {
 public:
  CpuExecutable(const Program& program, int64_t turned_bytes, StepPlan steps,
                const Machine& machine, std::shared_ptr<ThreadPool> pool, PreparedHere prepared,
                std::shared_ptr<WeightKeeper> keeper)
      : program_(program),
        turned_bytes_(turned_bytes),
        steps_(std::move(steps)),
        pool_(std::move(pool)),
        prepared_(std::move(prepared.products)),
        prepared_bytes_(prepared.bytes),
        keeper_(std::move(keeper)),
        machine_(machine),
        live_(program) {
    machine_.pool = pool_.get();
    machine_.workspace = &workspace_;
    if (!live_.has_gates()) return;
    for (size_t part = 0; part < kPartCount; ++part) {
      for (const Step& step : steps_[part]) {
        host::LiveSamples::Step& instructions = gated_[part].emplace_back();
        for (const StepPart& p : step.parts) instructions.push_back(p.planned.instruction);
      }
    }
  }

  ~CpuExecutable() override { keeper_->Drop(weights_); }

  absl::Status CheckGates() const {
    for (const auto& steps : gated_)
      RUNNEL_RETURN_IF_ERROR(host::LiveSamples::Check(program_, steps));
    return absl::OkStatus();
  }

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    const std::vector<Step>& steps = steps_[static_cast<int>(part)];
    weights_ = context.weights;
    const std::shared_ptr<KeptWeights> kept = keeper_->Hold(weights_);
    kept_ = kept.get();
    const int64_t kept_before = kept == nullptr ? 0 : kept->bytes();
    absl::Status status;
    if (live_.has_gates()) {
      status = live_.Run(gated_[static_cast<int>(part)], context, bindings,
                         [&](size_t step, const StepContext& of_step) {
                           return CheckAndRun(steps[step], of_step, bindings);
                         });
    } else {
      for (size_t i = 0; status.ok() && i < steps.size(); ++i)
        status = CheckAndRun(steps[i], context, bindings);
    }
    if (kept != nullptr) CountKept(kept, kept->bytes() - kept_before);
    return status;
  }

  // Packed weights that this executable, or runs of it, were the first to ask for, while they are
  // kept.
  int64_t memory_bytes() const override {
    return prepared_bytes_ + (kept_here_.expired() ? 0 : kept_here_bytes_);
  }

 private:
  void CountKept(const std::shared_ptr<KeptWeights>& kept, int64_t bytes) {
    if (kept_here_.lock() != kept) {
      kept_here_ = kept;
      kept_here_bytes_ = 0;
    }
    kept_here_bytes_ += bytes;
  }

  absl::Status CheckAndRun(const Step& step, const StepContext& context, const Bindings& bindings) {
    for (const StepPart& p : step.parts) RUNNEL_RETURN_IF_ERROR(CheckBound(p, bindings));
    return RunStep(step, context, bindings);
  }

  // Operands of one instruction.
  struct Operands {
    std::vector<Operand> inputs, outputs;
  };

  absl::Status CheckBound(const StepPart& part, const Bindings& bindings) const {
    const Instruction& instruction = *part.planned.instruction;
    for (const auto* operands : {&instruction.inputs, &instruction.outputs, &part.extra_inputs})
      RUNNEL_RETURN_IF_ERROR(host::CheckBound(program_, instruction, *operands, bindings));
    return absl::OkStatus();
  }

  absl::Status RunStep(const Step& step, const StepContext& context, const Bindings& bindings) {
    workspace_.Reset();
    StepContext overwriting = context;
    overwriting.accumulate = false;
    if (operands_.size() < step.parts.size()) operands_.resize(step.parts.size());
    calls_.resize(step.parts.size());
    for (size_t i = 0; i < step.parts.size(); ++i) {
      const StepPart& part = step.parts[i];
      operands_[i].inputs.clear();
      operands_[i].outputs.clear();
      std::byte* turned =
          part.planned.turns() ? workspace_.Take<std::byte>(turned_bytes_) : nullptr;
      PlaceOperands(part, bindings, turned, &operands_[i]);
      calls_[i] = {.instruction = part.planned.instruction,
                   .inputs = operands_[i].inputs,
                   .outputs = operands_[i].outputs,
                   .context = part.planned.instruction->overwrites ? &overwriting : &context,
                   .channels_last = part.planned.channels_last,
                   .machine = machine_,
                   .sums_done = part.sums_done,
                   .keep_output = part.keep_output,
                   .guess = &guesses_[part.planned.instruction],
                   .prepared = prepared_.get(),
                   .kept = kept_};
    }
    RUNNEL_RETURN_IF_ERROR(step.run(calls_));
    for (size_t i = 0; i < step.parts.size(); ++i) {
      const PlannedInstruction& planned = step.parts[i].planned;
      for (size_t k = 0; k < planned.outputs.size(); ++k) {
        if (planned.outputs[k].way == Turn::Way::kNone) continue;
        const Operand target = OperandOf(planned.instruction->outputs[k], bindings);
        cpu::RunTurn(machine_, LiveTurn(planned.outputs[k], *target.buffer),
                     operands_[i].outputs[k].data, target.data);
      }
    }
    return absl::OkStatus();
  }

  // Turned inputs are turned here; turned outputs get their place in `turned`.
  void PlaceOperands(const StepPart& part, const Bindings& bindings, std::byte* turned,
                     Operands* operands) {
    const PlannedInstruction& planned = part.planned;
    for (size_t i = 0; i < planned.inputs.size(); ++i) {
      Operand operand = OperandOf(planned.instruction->inputs[i], bindings);
      if (const Turn& turn = planned.inputs[i]; turn.way != Turn::Way::kNone) {
        cpu::RunTurn(machine_, LiveTurn(turn, *operand.buffer), operand.data,
                     turned + turn.workspace_offset);
        operand.data = turned + turn.workspace_offset;
      }
      operands->inputs.push_back(operand);
    }
    for (BufferIndex extra : part.extra_inputs) {
      operands->inputs.push_back(OperandOf(extra, bindings));
    }
    for (size_t i = 0; i < planned.outputs.size(); ++i) {
      Operand operand = OperandOf(planned.instruction->outputs[i], bindings);
      const Turn& turn = planned.outputs[i];
      if (turn.way != Turn::Way::kNone) operand.data = turned + turn.workspace_offset;
      operands->outputs.push_back(operand);
    }
  }

  Operand OperandOf(BufferIndex index, const Bindings& bindings) const {
    const Buffer& buffer = live_.program().buffers[index];
    return {bindings[buffer.storage] + buffer.offset_bytes, &buffer};
  }
  // Of the samples that lie there.
  static Turn LiveTurn(Turn turn, const Buffer& buffer) {
    if (buffer.packed_by != kNoGate) turn.samples = buffer.shape[0];
    return turn;
  }

  const Program& program_;
  const int64_t turned_bytes_;
  const StepPlan steps_;
  const std::shared_ptr<ThreadPool> pool_;
  const std::shared_ptr<const PreparedProducts> prepared_;
  const int64_t prepared_bytes_;
  const std::shared_ptr<WeightKeeper> keeper_;
  int64_t weights_ = 0;          // StepContext::weights of the last run
  KeptWeights* kept_ = nullptr;  // of the run
  std::weak_ptr<KeptWeights> kept_here_;
  int64_t kept_here_bytes_ = 0;
  Workspace workspace_;
  Machine machine_;
  std::map<const Instruction*, cpu::ShiftGuess> guesses_;
  host::LiveSamples live_;
  // Of a program with gates: the instructions of each step.
  std::array<std::vector<host::LiveSamples::Step>, kPartCount> gated_;
  // Of the step that runs; kept, so that a run asks for no memory.
  std::vector<Operands> operands_;
  std::vector<Call> calls_;
};

class CpuBackend : public Backend {
 public:
  CpuBackend(const InstructionSet& set, int threads, bool fused)
      : set_(set),
        machine_(MachineOf(set)),
        threads_(threads),
        fused_(fused),
        pool_(std::make_shared<ThreadPool>(threads)) {}

  // Rates: of a core with AVX-512.
  BackendTraits traits() const override {
    return {.name = "cpu",
            .numerics_class = absl::StrCat("cpu/", machine_.fp32->name, "/rule", fp32::kFp32Rule),
            .recomputes = fused_,
            .rescales_in_products = true,
            .codes_in_products = true,
            .multiplies_codes = true,
            .masks_stash = true,
            .narrows_stash = true,
            .computes_halves = true,
            .shifts_slices = true,
            .takes_slices = true,
            .dilates = true,
            .pads_by_side = true,
            .pads_means = true,
            .rates = {.int8_macs_per_second = 150e9,
                      .float_macs_per_second = 60e9,
                      .bytes_per_second = 5e9,
                      .instruction_seconds = 2e-6,
                      .switch_cost = {5e-6, 0.2e-9}}};
  }

  std::string description() const override {
    return absl::StrCat("own kernels, instruction set ", set_.name, ", ", threads_,
                        threads_ == 1 ? " thread" : " threads");
  }

  ProcessorFacts processor() const override {
    return {.backend = "cpu", .dot_product = std::string(set_.name)};
  }

  KernelTimer* kernel_timer() override { return &timer_; }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_RETURN_IF_ERROR(CheckWindows(traits(), program));
    const bool halves = IsHalf(program.values);
    RUNNEL_ASSIGN_OR_RETURN(const LayoutPlan layout,
                            cpu::PlanLayout(program, halves ? FindHalfKernel : FindKernel));
    auto executable = std::make_unique<CpuExecutable>(
        program, layout.workspace_bytes,
        fused_ && !halves ? cpu::FuseSteps(program, layout) : cpu::PlainSteps(layout), machine_,
        pool_, PreparedFor(program), keeper_);
    RUNNEL_RETURN_IF_ERROR(executable->CheckGates());
    return executable;
  }

 private:
  // Programs of the same constants share what is packed of them.
  PreparedHere PreparedFor(const Program& program) {
    if (program.constants == nullptr) return {};
    std::erase_if(prepared_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<const PreparedProducts>& kept = prepared_[program.constants];
    if (PreparedHere known{kept.lock()}; known.products != nullptr) return known;
    const auto products = std::make_shared<const PreparedProducts>(program, machine_);
    kept = products;
    return {products, products->bytes()};
  }

  const InstructionSet& set_;  // of the table
  const Machine machine_;
  const int threads_;
  const bool fused_;
  const std::shared_ptr<ThreadPool> pool_;
  const std::shared_ptr<WeightKeeper> keeper_ = std::make_shared<WeightKeeper>();
  cpu::LoneKernelTimer timer_{threads_};
  std::map<const std::byte*, std::weak_ptr<const PreparedProducts>> prepared_;  // by constants
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(int threads) {
  return MakeCappedCpuBackend(CpuInstructionSets().front(), threads);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCappedCpuBackend(absl::string_view cap, int threads,
                                                              bool fused) {
  if (threads < 1) return absl::InvalidArgumentError(absl::StrCat("threads = ", threads, " < 1"));
  for (const InstructionSet& set : kInstructionSets) {
    if (set.name == cap && HostHas(set.isa)) {
      return std::make_unique<CpuBackend>(set, threads, fused);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("backend cpu: instruction set '", cap,
                                                 "' is not there; there is ",
                                                 absl::StrJoin(CpuInstructionSets(), ", ")));
}

std::vector<std::string> CpuInstructionSets() {
  std::vector<std::string> names;
  for (const InstructionSet& set : kInstructionSets) {
    if (HostHas(set.isa)) names.emplace_back(set.name);
  }
  return names;
}

}  // namespace runnel
