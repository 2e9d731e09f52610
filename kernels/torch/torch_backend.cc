#include "kernels/torch/torch_backend.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/version.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/torch/kernel.h"
#include "kernels/torch/layout_plan.h"
#include "kernels/torch/placement.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using torch_kernels::Arena;
using torch_kernels::LayoutPlan;
using torch_kernels::Operand;
using torch_kernels::Step;
using torch_kernels::Turn;

class TorchExecutable : public Executable {
 public:
  TorchExecutable(const Program& program, LayoutPlan plan, int threads)
      : program_(program), plan_(std::move(plan)), threads_(threads) {}

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    // LibTorch throws; nothing of that leaves this function.
    try {
      const c10::InferenceMode guard;
      // OpenMP's thread count belongs to the calling thread, so making the backend is not enough.
      if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
      for (const Step& step : plan_.parts[static_cast<int>(part)]) {
        RUNNEL_RETURN_IF_ERROR(CheckBound(*step.instruction, bindings));
        RUNNEL_RETURN_IF_ERROR(RunStep(step, context, bindings));
      }
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
    }
  }

 private:
  absl::Status CheckBound(const Instruction& instruction, const Bindings& bindings) const {
    for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
      for (BufferIndex index : *operands) {
        const Storage storage = program_.buffers[index].storage;
        if (bindings[storage] != nullptr) continue;
        return absl::FailedPreconditionError(absl::StrCat(Name(instruction.code), " of layer ",
                                                          instruction.layer, ": storage ",
                                                          Name(storage), " is not bound"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(const Step& step, const StepContext& context, const Bindings& bindings) {
    std::byte* workspace = workspace_.Get(plan_.workspace_bytes);
    inputs_.clear();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      Operand operand = OperandOf(step.instruction->inputs[i], bindings);
      if (const Turn& turn = step.inputs[i]; turn.way != Turn::Way::kNone) {
        torch_kernels::RunTurn(turn, operand.data, workspace + turn.workspace_offset);
        operand.data = workspace + turn.workspace_offset;
      }
      inputs_.push_back(operand);
    }
    outputs_.clear();
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      Operand operand = OperandOf(step.instruction->outputs[i], bindings);
      const Turn& turn = step.outputs[i];
      if (turn.way != Turn::Way::kNone) operand.data = workspace + turn.workspace_offset;
      outputs_.push_back(operand);
    }
    torch_kernels::Call call;
    call.instruction = step.instruction;
    call.inputs = inputs_;
    call.outputs = outputs_;
    call.context = &context;
    call.channels_last = step.channels_last;
    call.arena = &arena_;
    RUNNEL_RETURN_IF_ERROR(step.kernel->run(call));
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const Turn& turn = step.outputs[i];
      if (turn.way == Turn::Way::kNone) continue;
      torch_kernels::RunTurn(turn, outputs_[i].data,
                             OperandOf(step.instruction->outputs[i], bindings).data);
    }
    return absl::OkStatus();
  }

  Operand OperandOf(BufferIndex index, const Bindings& bindings) const {
    const Buffer& buffer = program_.buffers[index];
    return {bindings[buffer.storage] + buffer.offset_bytes, &buffer};
  }

  const Program& program_;
  const LayoutPlan plan_;
  const int threads_;
  Arena workspace_;
  Arena arena_;
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
};

// A function of a library that LibTorch brought along; not every build has it.
template <typename Function>
Function* Loaded(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

std::string CpuCapability() {
  // LibTorch tells it only in a text for people.
  const std::string config = at::show_config();
  constexpr absl::string_view kMark = "CPU capability usage: ";
  std::string result = "unknown";
  if (const size_t at = config.find(kMark.data()); at != std::string::npos) {
    const size_t begin = at + kMark.size();
    result = absl::AsciiStrToLower(config.substr(begin, config.find('\n', begin) - begin));
  }
  if (const auto isa = Loaded<int()>("dnnl_get_effective_cpu_isa")) {
    absl::StrAppend(&result, "-onednn", isa());
  }
  if (const auto core = Loaded<char*()>("openblas_get_corename")) {
    absl::StrAppend(&result, "-openblas-", absl::AsciiStrToLower(core()));
  }
  return result;
}

class TorchBackend : public Backend {
 public:
  explicit TorchBackend(int threads) : threads_(threads) {}

  absl::string_view name() const override { return "torch"; }

  // The instruction sets that LibTorch, oneDNN (as a number) and OpenBLAS chose on this machine.
  std::string numerics_class() const override {
    return absl::StrCat("torch-", TORCH_VERSION, "/", CpuCapability(), "/threads", threads_);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_ASSIGN_OR_RETURN(LayoutPlan plan, torch_kernels::PlanLayout(program));
    return std::make_unique<TorchExecutable>(program, std::move(plan), threads_);
  }

 private:
  const int threads_;
};

// LibTorch's setting does not reach OpenBLAS (its own pool of threads); not every BLAS has this.
void SetBlasThreads(int threads) {
  if (const auto set = Loaded<void(int)>("openblas_set_num_threads")) set(threads);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeTorchBackend(int threads) {
  if (threads < 1) return absl::InvalidArgumentError(absl::StrCat("threads = ", threads, " < 1"));
  try {
    torch_kernels::InstallPlacement();
    at::set_num_threads(threads);
    SetBlasThreads(threads);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
  }
  return std::make_unique<TorchBackend>(threads);
}

void TuneAllocatorForTorch() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace runnel
