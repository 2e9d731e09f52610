#include "worker/inference/admitted_executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/backend.h"
#include "kernels/models/program_executor.h"
#include "proto/base/status_macros.h"

namespace runnel {

using inference::ExecutorRow;

absl::StatusOr<std::unique_ptr<AdmittedExecutor>> AdmittedExecutor::Make(
    absl::string_view name, const inference::Int8Graph& graph, int threads,
    const BackendVerdicts& verdicts) {
  RUNNEL_ASSIGN_OR_RETURN(const ExecutorRow* row, inference::FindGraphExecutor(name));
  std::unique_ptr<AdmittedExecutor> made(new AdmittedExecutor(graph, threads));
  absl::Status status =
      row->is_device ? made->TakeDevice(row->name, verdicts) : made->TakeProcessor(row->name);
  if (LostBackendOf(status).has_value()) status = made->GoOnWithout(status);
  if (!status.ok()) return status;
  return made;
}

absl::Status AdmittedExecutor::TakeDevice(absl::string_view name, const BackendVerdicts& verdicts) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(name, threads_));
  RUNNEL_RETURN_IF_ERROR(verdicts.Admit(*backend));
  RUNNEL_ASSIGN_OR_RETURN(executor_, inference::MakeProgramExecutor(graph_, std::move(backend)));
  backend_ = std::string(name);
  return absl::OkStatus();
}

absl::Status AdmittedExecutor::TakeProcessor(absl::string_view name) {
  RUNNEL_ASSIGN_OR_RETURN(executor_, inference::MakeGraphExecutor(name, graph_, threads_));
  backend_ = std::string(name);
  return absl::OkStatus();
}

absl::Status AdmittedExecutor::GoOnWithout(const absl::Status& lost) {
  note_ = absl::StrCat(lost.message(), "; backend cpu goes on, with the same bytes");
  return TakeProcessor("cpu");
}

absl::Status AdmittedExecutor::Run(absl::Span<const std::byte> input, int64_t batch,
                                   absl::Span<std::byte> output) {
  const absl::Status status = executor_->Run(input, batch, output);
  if (!LostBackendOf(status).has_value()) return status;
  RUNNEL_RETURN_IF_ERROR(GoOnWithout(status));
  return executor_->Run(input, batch, output);
}

absl::StatusOr<std::vector<double>> AdmittedExecutor::TimeNodes(absl::Span<const std::byte> input,
                                                                int64_t batch, int passes) {
  absl::StatusOr<std::vector<double>> seconds = executor_->TimeNodes(input, batch, passes);
  if (!LostBackendOf(seconds.status()).has_value()) return seconds;
  RUNNEL_RETURN_IF_ERROR(GoOnWithout(seconds.status()));
  return executor_->TimeNodes(input, batch, passes);
}

}  // namespace runnel
