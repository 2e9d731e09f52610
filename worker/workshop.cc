#include "worker/workshop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/recipe.h"
#include "proto/base/status_macros.h"
#include "worker/heap_limits.h"
#include "worker/measure/profiler.h"

namespace runnel {
namespace {

constexpr double kMillion = 1e6;

}  // namespace

Workshop::Workshop(Options options, const Parts& parts)
    : options_(std::move(options)),
      parts_(parts),
      measurement_({options_.state_folder, options_.device}, parts.transport, parts.clock,
                   parts.logger) {}

Workshop::~Workshop() { *alive_ = false; }

absl::Status Workshop::MakeUsualBackend() { return BackendFor(NamesOf("auto").front()).status(); }

std::string Workshop::numerics_class() const {
  return backend_ == nullptr ? "" : backend_->numerics_class();
}

absl::StatusOr<Backend*> Workshop::BackendFor(const std::string& name) {
  std::unique_ptr<Backend>& backend = backends_[name];
  if (backend == nullptr) {
    absl::StatusOr<std::unique_ptr<Backend>> made = MakeBackend(name, options_.threads);
    if (!made.ok()) return made.status();
    backend = *std::move(made);
  }
  return backend_ = backend.get();
}

std::vector<std::string> Workshop::NamesOf(const std::string& name) const {
  if (name != "auto") return {name};
  return options_.backend == "auto" ? AutoBackendNames() : std::vector{options_.backend};
}

absl::Status Workshop::WithBackend(const std::string& name,
                                   const std::function<absl::Status(Backend*)>& use) {
  absl::Status result;
  for (const std::string& one : NamesOf(name)) {
    RUNNEL_ASSIGN_OR_RETURN(Backend * backend, BackendFor(one));
    result = use(backend);
    if (!absl::IsUnimplemented(result)) return result;
  }
  return result;
}

template <typename Result>
void Workshop::Begin(WorkerPhase phase, std::function<Result()> work,
                     std::function<void(Result)> done) {
  phase_ = phase;
  progress_ = 0;
  lane_.Post([this, work = std::move(work), done = std::move(done), alive = alive_] {
    // A task of the loop can be copied, a result need not.
    auto result = std::make_shared<Result>(work());
    parts_.loop->Post([this, done, alive, result] {
      if (!*alive) return;
      phase_ = WorkerPhase::kIdle;
      done(std::move(*result));
    });
  });
}

absl::StatusOr<std::vector<RangeTime>> Workshop::Profile(
    const ProfileRequest& request, const ProfileOptions& options,
    const std::function<void(double)>& on_progress) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(request.recipe));
  std::vector<RangeTime> times;
  RUNNEL_RETURN_IF_ERROR(WithBackend(request.backend, [&](Backend* backend) {
    absl::StatusOr<std::vector<RangeTime>> measured =
        ProfileRanges(request.model, *recipe, *backend, options, *parts_.clock, on_progress);
    if (measured.ok()) times = *std::move(measured);
    return measured.status();
  }));
  TrimHeaps();
  return times;
}

void Workshop::Measure(ProfileRequest request, std::function<void(ProfileProgress)> on_progress,
                       std::function<void(absl::StatusOr<ProfileReport>)> done) {
  const auto tell = [this, on_progress = std::move(on_progress),
                     generation = request.generation](ProfileProgress progress) {
    progress.generation = generation;
    parts_.loop->Post([this, alive = alive_, on_progress, progress] {
      if (!*alive) return;
      progress_ = static_cast<int64_t>(progress.share * kMillion);
      on_progress(progress);
    });
  };
  Begin<absl::StatusOr<ProfileReport>>(
      WorkerPhase::kMeasuring,
      [this, request = std::move(request), tell] {
        const auto profile = [&](const ProfileOptions& options,
                                 const std::function<void(double)>& on_share) {
          return Profile(request, options, on_share);
        };
        return measurement_.Answer(request, profile, tell);
      },
      std::move(done));
}

absl::StatusOr<std::unique_ptr<StageHost>> Workshop::MakeHost(PrepareStage stage, StageHost* own,
                                                              StageEvents events) {
  // What did not come stands here.
  if (own != nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(ModelState state, own->TakeSnapshot());
    state.encoders.clear();
    Merge(stage.state, state);
    stage.state = Slice(state, stage.plan.stages[stage.stage].first_layer,
                        stage.plan.stages[stage.stage].last_layer);
  }
  absl::StatusOr<std::unique_ptr<StageHost>> host;
  RUNNEL_RETURN_IF_ERROR(WithBackend(stage.backend, [&](Backend* backend) {
    const StageEnvironment environment{parts_.loop,
                                       parts_.pool,
                                       backend,
                                       parts_.transport,
                                       parts_.limits,
                                       parts_.replicas,
                                       measurement_.shares_processor()};
    host = MakeStageHost(stage, environment, events);
    return host.status();
  }));
  return host;
}

void Workshop::Make(PrepareStage stage, StageHost* own, StageEvents events,
                    std::function<void(absl::StatusOr<std::unique_ptr<StageHost>>)> done) {
  // The state in it is large: it is not copied along with the task.
  auto given = std::make_shared<PrepareStage>(std::move(stage));
  Begin<absl::StatusOr<std::unique_ptr<StageHost>>>(
      WorkerPhase::kPreparing,
      [this, given, own, events = std::move(events)] {
        return MakeHost(std::move(*given), own, events);
      },
      std::move(done));
}

void Workshop::TakeState(
    StageHost* host, std::function<absl::Status(ModelState)> hand_over,
    std::function<void(const absl::Status& taken, const absl::Status& handed)> done) {
  struct Results {
    absl::Status taken;
    absl::Status handed;
  };
  Begin<Results>(
      WorkerPhase::kHandingOver,
      [host, hand_over = std::move(hand_over)]() -> Results {
        absl::StatusOr<ModelState> state = host->TakeSnapshot();
        if (!state.ok()) return {state.status(), absl::OkStatus()};
        return {absl::OkStatus(), hand_over(*std::move(state))};
      },
      [done = std::move(done)](const Results& results) { done(results.taken, results.handed); });
}

void Workshop::Retire(std::unique_ptr<StageHost> host) {
  host->Detach();
  lane_.Post([retired = std::shared_ptr<StageHost>(std::move(host))] {});
}

}  // namespace runnel
