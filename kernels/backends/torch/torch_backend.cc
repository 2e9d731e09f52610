// The LibTorch backend: FP32 programs on hosts that have LibTorch, an oracle beside ref. A shared
// object of its own, so that nobody else carries LibTorch's 330 libraries
// (kernels/backends/host/loaded_backend.h).

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/version.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/backends/host/loaded_backend.h"
#include "kernels/backends/torch/torch_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

class TorchExecutable final : public Executable {
 public:
  TorchExecutable(std::unique_ptr<Executable> steps, int threads)
      : steps_(std::move(steps)), threads_(threads) {}

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    // LibTorch throws; nothing of that leaves this function.
    try {
      const c10::InferenceMode guard;
      // OpenMP's thread count belongs to the calling thread, so making the backend is not enough.
      if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
      return steps_->Run(part, context, bindings);
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
    }
  }

 private:
  const std::unique_ptr<Executable> steps_;
  const int threads_;
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

  // The class has the instruction sets that LibTorch, oneDNN (as a number) and OpenBLAS chose on
  // this machine. Rates: of a core with AVX-512.
  BackendTraits traits() const override {
    return {.name = "torch",
            .numerics_class =
                absl::StrCat("torch-", TORCH_VERSION, "/", CpuCapability(), "/threads", threads_),
            .narrows_stash = true,
            .dilates = true,
            .pads_by_side = true,
            .rates = {.int8_macs_per_second = 10e9,
                      .float_macs_per_second = 50e9,
                      .bytes_per_second = 4e9,
                      .instruction_seconds = 10e-6,
                      .switch_cost = {10e-6, 0.2e-9}}};
  }

  std::string description() const override {
    return absl::StrCat("LibTorch ", TORCH_VERSION, " on the CPU (", CpuCapability(), "), FP32, ",
                        threads_, threads_ == 1 ? " thread" : " threads");
  }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_RETURN_IF_ERROR(CheckWindows(traits(), program));
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Executable> steps,
                            host::Interpret(program, name(), TorchKernels()));
    return std::make_unique<TorchExecutable>(std::move(steps), threads_);
  }

 private:
  const int threads_;
};

// LibTorch's setting does not reach OpenBLAS (its own pool of threads); not every BLAS has this.
void SetBlasThreads(int threads) {
  if (const auto set = Loaded<void(int)>("openblas_set_num_threads")) set(threads);
}

// Tells glibc to keep freed memory: without it oneDNN's temporaries are mapped and unmapped on
// every call. For the whole process, which asked for LibTorch. Nothing on other C libraries.
void KeepFreedMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

// settings.threads >= 1: of LibTorch's and OpenBLAS's pools, which belong to the process; the last
// call wins.
absl::StatusOr<std::unique_ptr<Backend>> MakeTorchBackend(const BackendSettings& settings) {
  const int threads = settings.threads;
  if (threads < 1) return absl::InvalidArgumentError(absl::StrCat("threads = ", threads, " < 1"));
  KeepFreedMemory();
  try {
    at::set_num_threads(threads);
    SetBlasThreads(threads);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
  }
  return std::make_unique<TorchBackend>(threads);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const BackendRow* runnel_backend_row(
    int contract) {
  static constexpr BackendRow row = {"torch", "LibTorch on the CPU, FP32", MakeTorchBackend};
  return contract == kBackendContract ? &row : nullptr;
}

}  // namespace runnel
