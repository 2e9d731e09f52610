#include "worker/core/workshop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/measure/profiler.h"
#include "worker/out_of_memory.h"

namespace runnel {
namespace {

constexpr double kMillion = 1e6;

}  // namespace

Workshop::Workshop(Options options, const Parts& parts)
    : options_(std::move(options)),
      parts_(parts),
      measurement_({options_.state_folder, options_.device}, parts.transport, &parts.loop->clock(),
                   parts.logger, options_.processors),
      lane_(MakeLane(parts.make_lane, LaneKind::kWorkshop)) {}

Workshop::~Workshop() { *alive_ = false; }

template <typename Result>
void Workshop::Begin(WorkerPhase phase, std::function<Result()> work,
                     std::function<void(Result)> done) {
  phase_ = phase;
  progress_ = 0;
  lane_->Post([this, work = std::move(work), done = std::move(done), alive = alive_] {
    // A task of the loop can be copied, a result need not.
    auto result = std::make_shared<Result>(work());
    parts_.loop->Post([this, done, alive, result, processors = parts_.arithmetic->processors()] {
      if (!*alive) return;
      if (parts_.on_processors != nullptr && processors != told_) {
        told_ = processors;
        parts_.on_processors(processors);
      }
      phase_ = WorkerPhase::kIdle;
      done(std::move(*result));
    });
  });
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
          return parts_.arithmetic->Profile(request, options, on_share);
        };
        absl::StatusOr<ProfileReport> report = WithinMemory("it measured layers", [&] {
          return measurement_.Answer(request, profile, tell,
                                     [this] { return parts_.arithmetic->measured_on(); });
        });
        if (report.ok() && report->kept)
          parts_.arithmetic->Adopt(request, {report->backend, report->choice});
        return report;
      },
      std::move(done));
}

void Workshop::List(ProgramRequest request,
                    std::function<void(absl::StatusOr<ProgramListing>)> done) {
  Begin<absl::StatusOr<ProgramListing>>(
      WorkerPhase::kMeasuring,
      [this, request = std::move(request)] {
        return WithinMemory("it listed a program",
                            [&] { return parts_.arithmetic->List(request); });
      },
      std::move(done));
}

absl::StatusOr<std::unique_ptr<StageHost>> Workshop::MakeHost(PrepareStage stage,
                                                              const ReplicaCopies& copies,
                                                              StageHost* own, StageEvents events) {
  const StagePlan& range = stage.plan.stages[stage.stage];
  if (stage.replica.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(
        stage.state, copies.AllLayersOf({{range.first_layer, range.last_layer}}, stage.state));
  }
  // Layers that were not sent are those of the own stage.
  if (own != nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(ModelState state, own->TakeSnapshot());
    state.encoders.clear();
    Merge(stage.state, state);
    stage.state = Slice(state, range.first_layer, range.last_layer);
  }
  const auto make_engine = [this, &stage](const StageExecutorOptions& options) {
    return parts_.arithmetic->MakeEngine(stage.backend, options, parts_.pool);
  };
  const StageEnvironment environment{
      parts_.loop,      parts_.pool,     parts_.transport,
      parts_.limits,    parts_.replicas, measurement_.shares_processor(),
      parts_.make_lane, parts_.energy,   parts_.spans};
  return MakeStageHost(stage, environment, make_engine, std::move(events));
}

void Workshop::Make(PrepareStage stage, StageHost* own, StageEvents events,
                    std::function<void(absl::StatusOr<std::unique_ptr<StageHost>>)> done) {
  // The state in it is large: it is not copied along with the task.
  auto given = std::make_shared<PrepareStage>(std::move(stage));
  const ReplicaCopies copies =
      given->replica.has_value() ? parts_.replicas->CopiesAt(*given->replica) : ReplicaCopies();
  Begin<absl::StatusOr<std::unique_ptr<StageHost>>>(
      WorkerPhase::kPreparing,
      [this, given, copies, own, events = std::move(events)] {
        return WithinMemory("it prepared its stage",
                            [&] { return MakeHost(std::move(*given), copies, own, events); });
      },
      std::move(done));
}

void Workshop::TakeState(
    std::function<absl::StatusOr<ModelState>()> take,
    std::function<absl::Status(ModelState)> hand_over,
    std::function<void(const absl::Status& taken, const absl::Status& handed)> done) {
  struct Results {
    absl::Status taken;
    absl::Status handed;
  };
  Begin<Results>(
      WorkerPhase::kHandingOver,
      [take = std::move(take), hand_over = std::move(hand_over)]() -> Results {
        constexpr char kDoing[] = "it copied its stage's state";
        absl::StatusOr<ModelState> state = WithinMemory(kDoing, take);
        if (!state.ok()) return {state.status(), absl::OkStatus()};
        return {absl::OkStatus(),
                WithinMemory(kDoing, [&] { return hand_over(*std::move(state)); })};
      },
      [done = std::move(done)](const Results& results) { done(results.taken, results.handed); });
}

void Workshop::DoWithout(const std::string& backend) {
  lane_->Post([this, backend] { parts_.arithmetic->DoWithout(backend); });
}

void Workshop::Retire(std::unique_ptr<StageHost> host) {
  host->Detach();
  lane_->Post([retired = std::shared_ptr<StageHost>(std::move(host))] {});
}

}  // namespace runnel
