#include "worker/core/backend_arithmetic.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/optimizer.h"
#include "worker/check/processor_examination.h"
#include "worker/heap_limits.h"
#include "worker/inference/inference_profile.h"
#include "worker/inference/inference_stage.h"
#include "worker/measure/list_program.h"
#include "worker/tune/stage_tuning.h"

namespace runnel {
namespace {

bool HasFloats(absl::string_view name) {
  const absl::Span<const BackendRow> rows = BuiltinBackends();
  return std::all_of(rows.begin(), rows.end(),
                     [&](const BackendRow& row) { return row.name != name || row.has_floats; });
}

std::string KeyOf(const ModelSpec& model, const Recipe& recipe) {
  return absl::StrCat(model.name, " ", recipe.name);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> BackendArithmetic::MakeAdmitted(const std::string& name) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(name, options_.settings));
  if (!IsLoadedBackend(name)) return backend;
  const absl::Status examined = verdicts_.Examine(*backend);
  opened_[name] = FactsOf(*backend, examined);
  if (!absl::IsUnimplemented(examined)) RUNNEL_RETURN_IF_ERROR(examined);
  return backend;
}

absl::Status BackendArithmetic::AdmitProcessors(const std::string& names) {
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
  std::vector<std::string> others = BackendsWorthMeasuring(options_.settings.options);
  const bool has_floats = !work.recipe.numbers.integer_parameters();
  std::erase_if(others, [&](const std::string& one) {
    return without_.contains(one) || (has_floats && !HasFloats(one));
  });
  if (others.empty()) return names;
  const auto [chosen, is_new] =
      chosen_.try_emplace(KeyOf(work.model, work.recipe), BackendChoice{names.front(), ""});
  if (is_new && has_floats) {
    // A measurement must not decide on bytes.
    chosen->second.reason =
        absl::StrCat("backend auto takes ", names.front(), ": the bytes of ", work.recipe.name,
                     " are another backend's on ", absl::StrJoin(others, ", "),
                     "; name it with --backend if you want it");
    Say(chosen->second.reason);
  } else if (is_new) {
    std::vector<BackendCandidate> candidates = {Measure(names.front(), work)};
    for (const std::string& other : others) {
      candidates.push_back(Measure(other, work));
      if (!candidates.back().error.ok()) continue;
      candidates.push_back(Measure(absl::StrCat(names.front(), ",", other), work));
    }
    chosen->second = ChooseFastest(candidates);
    Say(chosen->second.reason);
  }
  // The chosen backend may have been lost since.
  std::vector<std::string> processors = ProcessorsOf(chosen->second.name);
  std::erase_if(processors, [this](const std::string& one) { return without_.contains(one); });
  std::erase(names, absl::StrJoin(processors, ","));
  if (!processors.empty()) names.insert(names.begin(), absl::StrJoin(processors, ","));
  return names;
}

void BackendArithmetic::Say(const std::string& line) const {
  if (options_.logger != nullptr) options_.logger->Log(Severity::kInfo, line);
}

void BackendArithmetic::SaySlices(const StageExecutor& executor, const Backend& backend) const {
  const std::string& found = executor.slices_found();
  Say(absl::StrCat(
      "batch-split auto, backend ", backend.name(), ": ",
      found.empty() ? "nothing is measured here, products take whole micro-batches" : found));
}

absl::Status BackendArithmetic::WithBackend(const std::string& name, const Work& work,
                                            const std::function<absl::Status(Backend*)>& use) {
  absl::Status result;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesFor(name, work));
  for (const std::string& one : names) {
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(one));
    used_ = one;
    result = use(backend);
    if (!absl::IsUnimplemented(result)) return result;
  }
  return result;
}

absl::StatusOr<std::vector<RangeTime>> BackendArithmetic::Profile(
    const ProfileRequest& request, const ProfileOptions& options,
    const std::function<void(double share)>& on_progress) {
  if (request.recipe == kInt8Inference) {
    measured_on_ = {};
    return ProfileInference(request.model, options, [&](const inference::Int8Graph& graph) {
      return MakeGraphRunnerFor(request.backend, graph);
    });
  }
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(request.recipe));
  for (;;) {
    absl::StatusOr<std::vector<RangeTime>> times =
        ProfileOn(request, *recipe, options, on_progress);
    const std::optional<std::string> lost = LostBackendOf(times.status());
    // For integers another backend gives the same bytes.
    if (!lost.has_value() || !recipe->numbers.integer_parameters() ||
        !without_.insert(*lost).second)
      return times;
    if (options_.logger == nullptr) continue;
    options_.logger->Log(
        Severity::kWarning,
        absl::StrCat(times.status().message(),
                     "; from now on this worker measures and computes without ", *lost));
  }
}

absl::StatusOr<std::vector<RangeTime>> BackendArithmetic::ProfileOn(
    const ProfileRequest& request, const Recipe& recipe, const ProfileOptions& options,
    const std::function<void(double share)>& on_progress) {
  std::vector<RangeTime> times;
  const Work work = {
      request.model, {0, request.model.layer_count() - 1}, recipe, request.micro_batch_size};
  RUNNEL_RETURN_IF_ERROR(WithBackend(request.backend, work, [&](Backend* backend) {
    const StageTuning tuning(*backend, tunings_, options_.logger);
    absl::StatusOr<std::vector<RangeTime>> measured =
        ProfileRanges(request.model, recipe, *backend, options, *clock_, on_progress);
    if (measured.ok()) times = *std::move(measured);
    return measured.status();
  }));
  TrimHeaps();
  const auto chosen = chosen_.find(KeyOf(request.model, recipe));
  const bool is_open = request.backend == "auto" && options_.backend == "auto";
  measured_on_ = {used_, is_open && chosen != chosen_.end() ? chosen->second.reason : "",
                  without_.empty(), numerics_class()};
  return times;
}

void BackendArithmetic::Adopt(const ProfileRequest& request, const MeasuredOn& on) {
  if (request.backend != "auto" || options_.backend != "auto" || on.backend.empty()) return;
  const absl::StatusOr<const Recipe*> recipe = FindRecipe(request.recipe);
  // A backend that no longer opens is measured again when a stage is made.
  if (!recipe.ok() || !without_.empty() || !BackendFor(on.backend).ok()) return;
  chosen_.try_emplace(KeyOf(request.model, **recipe), BackendChoice{on.backend, on.why});
}

std::vector<ProcessorFacts> BackendArithmetic::processors() {
  std::vector<ProcessorFacts> list;
  for (const BackendRow& row : BuiltinBackends()) {
    const std::string name(row.name);
    const auto opened = opened_.find(name);
    if (opened != opened_.end()) {
      list.push_back(opened->second);
    } else if (!row.is_loaded()) {
      const absl::StatusOr<std::unique_ptr<Backend>> backend = row.make(options_.settings);
      if (!backend.ok()) continue;
      opened_[name] = FactsOf(**backend, absl::OkStatus());
      list.push_back(opened_[name]);
    } else if (row.is_installed(row.name, options_.settings.options)) {
      const auto& offered = options_.offered;
      const bool is_offered = std::find(offered.begin(), offered.end(), name) != offered.end();
      list.push_back(is_offered ? FactsOfUnopened(row, options_.settings.options)
                                : FactsOfMissing(row, absl::InvalidArgumentError(
                                                          "found wrong: see runnel-worker "
                                                          "--check")));
    } else {
      continue;
    }
    if (without_.contains(name)) {
      list.back().state = ProcessorState::kRefused;
      list.back().note = "lost in this run";
    }
    list.back() = Shortened(std::move(list.back()));
  }
  if (list.size() > kMaxProcessorFacts) list.resize(kMaxProcessorFacts);
  return list;
}

absl::StatusOr<ProgramListing> BackendArithmetic::List(const ProgramRequest& request) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(request.recipe));
  RUNNEL_ASSIGN_OR_RETURN(StageArithmetic arithmetic,
                          ArithmeticOf(request.training, request.model, *recipe));
  arithmetic.programs.max_batch = request.micro_batch_size;
  arithmetic.programs.one_in_flight = request.one_in_flight;
  arithmetic.programs.defers_weight_gradients = request.defers_weight_gradients;
  const ListedStage stage = {request.model, request.layers, std::move(arithmetic)};
  absl::StatusOr<ProgramListing> listing;
  for (const std::string& one : NamesOf(request.backend)) {
    RUNNEL_RETURN_IF_ERROR(AdmitProcessors(one));
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<CoScheduler> processors,
                            MakeCoScheduler(one, options_.settings));
    listing = ListProgram(stage, *processors);
    if (!absl::IsUnimplemented(listing.status())) break;
  }
  return listing;
}

absl::StatusOr<std::unique_ptr<inference::GraphRunner>> BackendArithmetic::MakeGraphRunnerFor(
    const std::string& name, const inference::Int8Graph& graph) {
  absl::StatusOr<std::unique_ptr<inference::GraphRunner>> runner;
  for (const std::string& one : NamesOf(name)) {
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(one));
    runner = inference::GraphRunner::Make(graph, *backend);
    if (!absl::IsUnimplemented(runner.status())) break;
  }
  return runner;
}

absl::StatusOr<std::unique_ptr<StageEngine>> BackendArithmetic::MakeInferenceStage(
    const std::string& backend, const StageExecutorOptions& options, BufferPool* pool) {
  return InferenceStage::Create(
      {options.model, options.first_layer, options.last_layer, options.training.eval_batch_size},
      [this, backend](const inference::Int8Graph& graph) {
        return MakeGraphRunnerFor(backend, graph);
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
    if (!made.ok()) return made.status();
    if (options.training.batch_split == "auto") SaySlices(**made, *one);
    engine = *std::move(made);
    return absl::OkStatus();
  }));
  return engine;
}

}  // namespace runnel
