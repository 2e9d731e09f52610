#include "worker/core/backend_arithmetic.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/co_scheduler/mixed_backend.h"
#include "kernels/lost_backend.h"
#include "kernels/recipe.h"
#include "proto/base/status_macros.h"
#include "worker/heap_limits.h"
#include "worker/measure/list_program.h"
#include "worker/tune/stage_tuning.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<Backend>> BackendArithmetic::MakeAdmitted(
    const std::string& name) const {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(name, options_.threads));
  if (IsLoadedBackend(name)) RUNNEL_RETURN_IF_ERROR(verdicts_.Admit(*backend));
  return backend;
}

absl::Status BackendArithmetic::AdmitProcessors(const std::string& names) const {
  for (const std::string& one : ProcessorsOf(names)) {
    if (IsLoadedBackend(one)) RUNNEL_RETURN_IF_ERROR(MakeAdmitted(one).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Backend*> BackendArithmetic::BackendFor(const std::string& name) {
  std::unique_ptr<Backend>& backend = backends_[name];
  if (backend == nullptr) {
    if (ProcessorsOf(name).size() > 1) RUNNEL_RETURN_IF_ERROR(AdmitProcessors(name));
    RUNNEL_ASSIGN_OR_RETURN(backend, MakeAdmitted(name));
    AdoptTunings(*backend, tunings_, options_.logger);
  }
  return backend_ = backend.get();
}

absl::Status BackendArithmetic::Prepare() {
  const absl::Status status = BackendFor(NamesOf("auto").front()).status();
  if (!LostBackendOf(status).has_value()) return status;
  // Another dial meets the same device.
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; take --backend cpu, and see `runnel-worker --check`"));
}

std::vector<std::string> BackendArithmetic::NamesOf(const std::string& name) const {
  const std::string& wanted = name == "auto" ? options_.backend : name;
  if (wanted == "auto") return AutoBackendNames();
  std::vector<std::string> left = ProcessorsOf(wanted);
  if (std::erase_if(left, [this](const std::string& one) { return without_.contains(one); }) == 0)
    return {wanted};
  return left.empty() ? AutoBackendNames() : std::vector{absl::StrJoin(left, ",")};
}

absl::Status BackendArithmetic::WithBackend(const std::string& name,
                                            const std::function<absl::Status(Backend*)>& use) {
  absl::Status result;
  for (const std::string& one : NamesOf(name)) {
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(one));
    result = use(backend);
    if (!absl::IsUnimplemented(result)) return result;
  }
  return result;
}

absl::StatusOr<std::vector<RangeTime>> BackendArithmetic::Profile(
    const ProfileRequest& request, const ProfileOptions& options,
    const std::function<void(double share)>& on_progress) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(request.recipe));
  std::vector<RangeTime> times;
  RUNNEL_RETURN_IF_ERROR(WithBackend(request.backend, [&](Backend* backend) {
    const StageTuning tuning(*backend, tunings_, options_.logger);
    absl::StatusOr<std::vector<RangeTime>> measured =
        ProfileRanges(request.model, *recipe, *backend, options, *clock_, on_progress);
    if (measured.ok()) times = *std::move(measured);
    return measured.status();
  }));
  TrimHeaps();
  return times;
}

absl::StatusOr<ProgramListing> BackendArithmetic::List(const ProgramRequest& request) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(request.recipe));
  RUNNEL_ASSIGN_OR_RETURN(const RescaleRule rescale, ParseRescale(request.rescale));
  const ListedStage stage = {request.model, request.layers, request.micro_batch_size,
                             request.accumulates, rescale};
  absl::StatusOr<ProgramListing> listing;
  for (const std::string& one : NamesOf(request.backend)) {
    RUNNEL_RETURN_IF_ERROR(AdmitProcessors(one));
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<CoScheduler> processors,
                            MakeCoScheduler(one, options_.threads));
    listing = ListProgram(stage, *recipe, *processors);
    if (!absl::IsUnimplemented(listing.status())) break;
  }
  return listing;
}

absl::StatusOr<std::unique_ptr<StageEngine>> BackendArithmetic::MakeEngine(
    const std::string& backend, const StageExecutorOptions& options, BufferPool* pool) {
  std::unique_ptr<StageEngine> engine;
  RUNNEL_RETURN_IF_ERROR(WithBackend(backend, [&](Backend* one) {
    const StageTuning tuning(*one, tunings_, options_.logger);
    absl::StatusOr<std::unique_ptr<StageExecutor>> made = StageExecutor::Create(options, one, pool);
    if (made.ok()) engine = *std::move(made);
    return made.status();
  }));
  return engine;
}

}  // namespace runnel
