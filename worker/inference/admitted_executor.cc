#include "worker/inference/admitted_executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/backend.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<AdmittedExecutor>> AdmittedExecutor::Make(
    absl::string_view name, const inference::Int8Graph& graph, int threads,
    const BackendVerdicts& verdicts) {
  std::unique_ptr<AdmittedExecutor> made(new AdmittedExecutor(graph, threads));
  RUNNEL_RETURN_IF_ERROR(made->WithoutLost([&] { return made->Take(name, &verdicts); }));
  return made;
}

absl::Status AdmittedExecutor::Take(absl::string_view name, const BackendVerdicts* verdicts) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(name, threads_));
  if (verdicts != nullptr && IsLoadedBackend(name)) {
    RUNNEL_RETURN_IF_ERROR(verdicts->Admit(*backend));
  }
  RUNNEL_ASSIGN_OR_RETURN(runner_, inference::GraphRunner::Make(graph_, std::move(backend)));
  return absl::OkStatus();
}

// Once more on the processor, if the device is lost.
absl::Status AdmittedExecutor::WithoutLost(const std::function<absl::Status()>& use) {
  const absl::Status status = use();
  if (!LostBackendOf(status).has_value()) return status;
  note_ = absl::StrCat(status.message(), "; backend cpu goes on, with the same bytes");
  const bool is_made = runner_ != nullptr;
  RUNNEL_RETURN_IF_ERROR(Take("cpu", nullptr));
  return is_made ? use() : absl::OkStatus();
}

absl::Status AdmittedExecutor::Run(absl::Span<const std::byte> input, int64_t batch,
                                   absl::Span<std::byte> output) {
  return WithoutLost([&] { return runner_->Run(input, batch, output); });
}

absl::StatusOr<std::vector<double>> AdmittedExecutor::TimeNodes(int64_t batch, int passes) {
  std::vector<double> seconds;
  RUNNEL_RETURN_IF_ERROR(WithoutLost([&]() -> absl::Status {
    RUNNEL_ASSIGN_OR_RETURN(seconds, runner_->TimeNodes(batch, passes));
    return absl::OkStatus();
  }));
  return seconds;
}

}  // namespace runnel
