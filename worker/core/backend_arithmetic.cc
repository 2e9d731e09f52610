#include "worker/core/backend_arithmetic.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/co_scheduler/mixed_backend.h"
#include "kernels/inference/program_executor.h"
#include "kernels/lost_backend.h"
#include "kernels/recipe.h"
#include "proto/base/status_macros.h"
#include "worker/heap_limits.h"
#include "worker/inference/inference_profile.h"
#include "worker/inference/inference_stage.h"
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

BackendCandidate BackendArithmetic::Measure(const std::string& name, const Work& work) {
  constexpr double kEnoughMs = 500;
  BackendCandidate candidate = {name};
  const auto measure = [&]() -> absl::Status {
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(name));
    const StageTuning tuning(*backend, tunings_, options_.logger);
    ProfileOptions options;
    options.samples = work.samples;
    options.repetitions = 3;
    options.ranges = {work.layers};
    options.enough_ms = kEnoughMs;
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<RangeTime> times,
                            ProfileRanges(work.model, work.recipe, *backend, options, *clock_));
    candidate.seconds = times.front().seconds;
    return absl::OkStatus();
  };
  candidate.error = measure();
  return candidate;
}

absl::StatusOr<std::vector<std::string>> BackendArithmetic::NamesFor(const std::string& name,
                                                                     const Work& work) {
  std::vector<std::string> names = NamesOf(name);
  if (name != "auto" || options_.backend != "auto") return names;
  std::vector<std::string> others = BackendsWorthMeasuring();
  std::erase_if(others, [this](const std::string& one) { return without_.contains(one); });
  if (others.empty()) return names;
  const auto [chosen, is_new] =
      chosen_.try_emplace(absl::StrCat(work.model.name, " ", work.recipe.name), names.front());
  if (is_new && !work.recipe.numbers.integer_parameters()) {
    // A measurement must not decide on bytes.
    Say(absl::StrCat("backend auto takes ", names.front(), ": the bytes of ", work.recipe.name,
                     " are another backend's on ", absl::StrJoin(others, ", "),
                     "; name it with --backend if you want it"));
  } else if (is_new) {
    std::vector<BackendCandidate> candidates = {Measure(names.front(), work)};
    for (const std::string& other : others) {
      candidates.push_back(Measure(other, work));
      if (!candidates.back().error.ok()) continue;
      candidates.push_back(Measure(absl::StrCat(names.front(), ",", other), work));
    }
    const BackendChoice choice = ChooseFastest(candidates);
    chosen->second = choice.name;
    Say(choice.reason);
  }
  // What was chosen may have been lost since.
  std::vector<std::string> processors = ProcessorsOf(chosen->second);
  std::erase_if(processors, [this](const std::string& one) { return without_.contains(one); });
  std::erase(names, absl::StrJoin(processors, ","));
  if (!processors.empty()) names.insert(names.begin(), absl::StrJoin(processors, ","));
  return names;
}

void BackendArithmetic::Say(const std::string& line) const {
  if (options_.logger != nullptr) options_.logger->Log(Severity::kInfo, line);
}

absl::Status BackendArithmetic::WithBackend(const std::string& name, const Work& work,
                                            const std::function<absl::Status(Backend*)>& use) {
  absl::Status result;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesFor(name, work));
  for (const std::string& one : names) {
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(one));
    result = use(backend);
    if (!absl::IsUnimplemented(result)) return result;
  }
  return result;
}

absl::StatusOr<std::vector<RangeTime>> BackendArithmetic::Profile(
    const ProfileRequest& request, const ProfileOptions& options,
    const std::function<void(double share)>& on_progress) {
  if (request.recipe == kInt8Inference) {
    return ProfileInference(request.model, options, [&](const inference::Int8Graph& graph) {
      return MakeGraphExecutorFor(request.backend, graph);
    });
  }
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(request.recipe));
  std::vector<RangeTime> times;
  const Work work = {
      request.model, {0, request.model.layer_count() - 1}, *recipe, request.micro_batch_size};
  RUNNEL_RETURN_IF_ERROR(WithBackend(request.backend, work, [&](Backend* backend) {
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

absl::StatusOr<std::unique_ptr<inference::GraphExecutor>> BackendArithmetic::MakeGraphExecutorFor(
    const std::string& name, const inference::Int8Graph& graph) {
  absl::StatusOr<std::unique_ptr<inference::GraphExecutor>> executor;
  for (const std::string& one : NamesOf(name)) {
    RUNNEL_ASSIGN_OR_RETURN(const inference::ExecutorRow* row, inference::FindGraphExecutor(one));
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(one));
    // A device is opened once.
    executor = row->is_device ? inference::MakeProgramExecutor(graph, *backend)
                              : row->make(graph, options_.threads);
    if (!absl::IsUnimplemented(executor.status())) break;
  }
  return executor;
}

absl::StatusOr<std::unique_ptr<StageEngine>> BackendArithmetic::MakeInferenceStage(
    const std::string& backend, const StageExecutorOptions& options, BufferPool* pool) {
  return InferenceStage::Create(
      {options.model, options.first_layer, options.last_layer, options.training.eval_batch_size},
      [this, backend](const inference::Int8Graph& graph) {
        return MakeGraphExecutorFor(backend, graph);
      },
      pool);
}

absl::StatusOr<std::unique_ptr<StageEngine>> BackendArithmetic::MakeEngine(
    const std::string& backend, const StageExecutorOptions& options, BufferPool* pool) {
  if (options.recipe == nullptr) return MakeInferenceStage(backend, options, pool);
  std::unique_ptr<StageEngine> engine;
  const int64_t parts = std::max<int64_t>(1, options.training.micro_batches);
  const Work work = {options.model,
                     {options.first_layer, options.last_layer},
                     *options.recipe,
                     (options.training.batch_size + parts - 1) / parts};
  RUNNEL_RETURN_IF_ERROR(WithBackend(backend, work, [&](Backend* one) {
    const StageTuning tuning(*one, tunings_, options_.logger);
    absl::StatusOr<std::unique_ptr<StageExecutor>> made = StageExecutor::Create(options, one, pool);
    if (made.ok()) engine = *std::move(made);
    return made.status();
  }));
  return engine;
}

}  // namespace runnel
