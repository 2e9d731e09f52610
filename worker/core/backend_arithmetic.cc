#include "worker/core/backend_arithmetic.h"

#include <utility>

#include "kernels/co_scheduler/mixed_backend.h"
#include "kernels/recipe.h"
#include "proto/base/status_macros.h"
#include "worker/heap_limits.h"
#include "worker/measure/list_program.h"

namespace runnel {

absl::StatusOr<Backend*> BackendArithmetic::BackendFor(const std::string& name) {
  std::unique_ptr<Backend>& backend = backends_[name];
  if (backend == nullptr) {
    absl::StatusOr<std::unique_ptr<Backend>> made = MakeBackend(name, threads_);
    if (!made.ok()) return made.status();
    backend = *std::move(made);
  }
  return backend_ = backend.get();
}

std::vector<std::string> BackendArithmetic::NamesOf(const std::string& name) const {
  if (name != "auto") return {name};
  return usual_ == "auto" ? AutoBackendNames() : std::vector{usual_};
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
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<CoScheduler> processors,
                            MakeCoScheduler(one, threads_));
    listing = ListProgram(stage, *recipe, *processors);
    if (!absl::IsUnimplemented(listing.status())) break;
  }
  return listing;
}

absl::StatusOr<std::unique_ptr<StageEngine>> BackendArithmetic::MakeEngine(
    const std::string& backend, const StageExecutorOptions& options, BufferPool* pool) {
  std::unique_ptr<StageEngine> engine;
  RUNNEL_RETURN_IF_ERROR(WithBackend(backend, [&](Backend* one) {
    absl::StatusOr<std::unique_ptr<StageExecutor>> made = StageExecutor::Create(options, one, pool);
    if (made.ok()) engine = *std::move(made);
    return made.status();
  }));
  return engine;
}

}  // namespace runnel
