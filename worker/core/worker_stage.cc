// The part of WorkerCore that is about stages: measured, listed, prepared aside, committed, granted
// steps, asked for their state, dropped; and what it reports of that.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/backend.h"
#include "proto/crypto/certificate.h"
#include "worker/core/worker_core.h"
#include "worker/not_finite.h"

namespace runnel {
namespace {

bool IsUnfit(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
}

// The reason for central and people. Names the remedy if a stage, or a message, is too large for
// this worker.
std::string ReasonOf(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return std::string(status.message());
  return absl::StrCat(status.message(),
                      ": give it fewer layers (more workers, or --policy runnel and a --memory-mb "
                      "that this worker really has), or take a smaller --batch-size");
}

}  // namespace

void WorkerCore::On(ProfileRequest request) {
  const Generation generation = request.generation;
  workshop_->Measure(
      std::move(request), [this](const ProfileProgress& progress) { Send(progress); },
      [this, generation](absl::StatusOr<ProfileReport> report) {
        if (report.ok()) {
          report->generation = generation;
          Send(*std::move(report));
        } else {
          const std::string reason = ReasonOf(report.status());
          parts_.logger->Log(Severity::kDebug, reason);
          Send(ProfileFailed{reason, IsUnfit(report.status()), generation});
        }
        CarryOutWaiting();
      });
}

void WorkerCore::On(ProgramRequest request) {
  const Generation generation = request.generation;
  workshop_->List(std::move(request), [this, generation](absl::StatusOr<ProgramListing> listing) {
    ProgramReport report{generation, {}, std::string(listing.status().message())};
    if (listing.ok()) report.listing = *std::move(listing);
    Send(std::move(report));
    CarryOutWaiting();
  });
}

void WorkerCore::On(PrepareStage stage) {
  stages_.DropAside();
  if (stages_.IsTakenBack(stage.plan.generation)) return;
  // First, so that two stages are never in memory at once.
  if (stage.starts_over) stages_.DropCurrent();
  const Generation generation = stage.plan.generation;
  const LinkExpectation expectation{stage.link_token, stage.upstream_peer,
                                    CentralSubject().ToString()};
  const LinkShaping shaping = stage.shaping;
  workshop_->Make(std::move(stage), stages_.current(), Events(generation),
                  [=, this](absl::StatusOr<std::unique_ptr<StageHost>> host) {
                    if (!host.ok()) {
                      Failed(generation, host.status(), IsUnfit(host.status()));
                    } else if (stages_.IsTakenBack(generation)) {
                      workshop_->Retire(*std::move(host));
                    } else {
                      const std::string numerics_class = (*host)->numerics_class();
                      stages_.PutAside({*std::move(host), generation, expectation, shaping});
                      Send(StagePrepared{generation, numerics_class});
                    }
                    CarryOutWaiting();
                  });
}

WorkerCore::StateSource WorkerCore::OwnState() const {
  return {[host = stages_.current()] { return host->TakeSnapshot(); }, stages_.generation()};
}

void WorkerCore::SendState(Generation generation, StateSource source,
                           std::function<WorkerMessage(ModelState)> message) {
  const auto hand_over = [this, message = std::move(message)](ModelState state) {
    return control_->Send(message(std::move(state)));
  };
  workshop_->TakeState(std::move(source.take), hand_over,
                       [this, generation, taken_of = source.generation](
                           const absl::Status& taken, const absl::Status& handed) {
                         if (!taken.ok()) Failed(taken_of, taken);
                         if (absl::IsResourceExhausted(handed)) {
                           Failed(generation, handed);
                         } else if (!handed.ok()) {
                           End(handed);
                         }
                         CarryOutWaiting();
                       });
}

void WorkerCore::On(const Replicate& request) {
  if (IsAboutAnother(request.id.generation)) return;
  if (stage() == nullptr) return FailWithoutStage("replicate its state");
  auto copy = std::make_shared<std::shared_ptr<const SummedState>>();
  const auto keep = [copy](ModelState state) {
    *copy = std::make_shared<const SummedState>(std::move(state));
    return absl::OkStatus();
  };
  const auto send = [this, request, copy, begin_ns = loop_.clock().NowNanos()](
                        const absl::Status& taken, const absl::Status& kept) {
    absl::Status status = taken.ok() ? kept : taken;
    if (status.ok() && stage() != nullptr) {
      status = stages_.current()->Replicate(request, *copy, loop_.clock().NowNanos() - begin_ns);
    }
    if (!status.ok()) Failed(stages_.generation(), status);
    CarryOutWaiting();
  };
  workshop_->TakeState(OwnState().take, keep, send);
}

void WorkerCore::On(const FetchLayers& request) {
  if (request.replica.has_value()) {
    const auto take = [copies = replicas_.CopiesAt(*request.replica), ranges = request.ranges] {
      return copies.AllLayersOf(ranges);
    };
    return SendState(request.generation, {take, request.generation},
                     [generation = request.generation](ModelState state) {
                       return LayersFetched{generation, std::move(state)};
                     });
  }
  if (stage() == nullptr) return FailWithoutStage("hand over layers");
  SendState(request.generation, OwnState(), [request](ModelState state) {
    std::erase_if(state.layers, [&](const LayerState& layer) {
      return std::none_of(
          request.ranges.begin(), request.ranges.end(), [&](const LayerRange& range) {
            return range.first_layer <= layer.layer && layer.layer <= range.last_layer;
          });
    });
    return LayersFetched{request.generation, std::move(state)};
  });
}

void WorkerCore::On(const CommitPlan& commit) {
  // A worker without a stage in the new plan waits for another plan.
  std::optional<HeldStages::Prepared> committed = stages_.Commit(commit.generation);
  replicas_.DropUncommitted();
  if (!committed.has_value()) return;
  endpoint_.Expect(std::move(committed->expectation), committed->shaping);
  stages_.current()->Start();
}

StageEvents WorkerCore::Events(Generation generation) {
  StageEvents events;
  events.on_ready = [this, generation] { Send(StageReady{generation}); };
  events.on_barrier = [this, generation](Sequence sequence) {
    SendTelemetry();
    Send(BarrierReached{generation, sequence});
  };
  events.on_evaluation = [this](const EvaluationDone& done) {
    SendTelemetry();
    Send(done);
  };
  events.on_dry_run = [this](const DryRunDone& done) { Send(done); };
  events.on_first_backward = [this] { SendTelemetry(); };
  events.on_replicated = [this](const Replicated& replicated) { Send(replicated); };
  // The host is in the middle of something: it goes when the loop is back.
  events.on_failed = [this, generation](const absl::Status& status) { Failed(generation, status); };
  return events;
}

void WorkerCore::Failed(Generation generation, const absl::Status& status, bool unfit) {
  const std::string lost_backend = LostBackendOf(status).value_or("");
  const std::string reason =
      lost_backend.empty() ? ReasonOf(status) : std::string(status.message());
  if (lost_backend.empty()) {
    parts_.logger->Log(Severity::kWarning, absl::StrCat("the stage of plan ", generation.value(),
                                                        " has failed: ", reason));
  } else {
    parts_.logger->Log(Severity::kWarning,
                       absl::StrCat(reason, "; from now on this worker computes on its CPU"));
    workshop_->DoWithout(lost_backend);
  }
  // Not by Send: where this message does not fit either, there is nothing more to say.
  if (absl::Status sent =
          control_->Send(StageFailed{generation, reason, unfit, lost_backend, NotFiniteOf(status)});
      !sent.ok())
    return End(sent);
  loop_.Post([this, generation] {
    if (stages_.generation() == generation) stages_.DropCurrent();
  });
}

void WorkerCore::FailWithoutStage(absl::string_view request) {
  Send(StageFailed{stages_.generation(),
                   absl::StrCat("was asked to ", request, " and has no stage")});
}

void WorkerCore::On(const RunUntil& grant) {
  if (IsAboutAnother(grant.generation)) return;
  if (stage() == nullptr) return FailWithoutStage("train");
  for (const TrainingChange& change : grant.changes) stages_.current()->ChangeTraining(change);
  if (absl::Status status = stages_.current()->RunUntil(grant.limit); !status.ok())
    Failed(stages_.generation(), status);
}

void WorkerCore::On(const SnapshotRequest& request) {
  if (IsAboutAnother(request.generation)) return;
  if (stage() == nullptr) return FailWithoutStage("report its state");
  SendState(request.generation, OwnState(), [request](ModelState state) {
    if (request.weights_only) {
      UseAverages(state);
      KeepWeightsOnly(state);
    }
    return Snapshot{request.generation, request.sequence, std::move(state)};
  });
}

void WorkerCore::On(const EvaluateRequest& request) {
  if (IsAboutAnother(request.generation)) return;
  if (stage() == nullptr) return FailWithoutStage("evaluate");
  if (absl::Status status = stages_.current()->Evaluate(request.first, request.micro_batches);
      !status.ok()) {
    Failed(stages_.generation(), status);
  }
}

void WorkerCore::On(const DryRunRequest& request) {
  if (IsAboutAnother(request.generation)) return;
  if (stage() == nullptr) return FailWithoutStage("run dry");
  if (absl::Status status =
          stages_.current()->DryRun(request.first, request.micro_batches, request.coded);
      !status.ok()) {
    Failed(stages_.generation(), status);
  }
}

}  // namespace runnel
