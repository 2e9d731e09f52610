#pragma once

// What trainer.cc (processes, streams, effects), trainer_plan.cc (what the coordinator decides
// with) and trainer_summary.cc (how far the run is) share. Nobody else includes it.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/display/run_display.h"
#include "central/display/timeline.h"
#include "central/planning/planner.h"
#include "central/records/journal.h"
#include "central/records/summary.h"
#include "central/run/coordinator.h"
#include "central/run/feeder.h"
#include "central/run/trainer.h"
#include "central/run/worker_process.h"
#include "proto/base/log.h"
#include "proto/base/payload.h"
#include "proto/base/plan.h"
#include "proto/base/processor_time.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/link/event_loop.h"

namespace runnel {

// Connections report on threads of their own, and StopAtBarrier may be called on any: both post to
// loop_. All else is on the thread of Run.
class Trainer::Impl final : public CentralControlObserver {
 public:
  Impl(TrainingJob job, TrainerParts parts);
  ~Impl() override;

  absl::StatusOr<TrainingOutcome> Run();
  void StopAtBarrier() {
    loop_.Post([this] { Pump([](Coordinator& coordinator) { coordinator.StopAtBarrier(); }); });
  }

  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override {
    loop_.Post([this, id, message = std::move(message)] { Received(id, message); });
  }
  void OnGone(ConnectionId id, const absl::Status& status) override {
    const absl::Status reason =
        status.ok() ? absl::UnavailableError("it closed its control stream") : status;
    loop_.Post([this, id, reason] {
      Pump([&](Coordinator& coordinator) { coordinator.Gone(id, reason); });
    });
  }

 private:
  const RunSetup& setup() const { return *job_.setup; }
  CoordinatorOptions Options();
  absl::Status StartWorkers();
  bool IsLocal(const WorkerHello& hello) const;
  void Received(ConnectionId id, const WorkerMessage& message);
  void NoteProgress();
  void Tick();
  void WatchWorkers();

  // Gives the coordinator an event and carries out what it wants.
  template <typename Event>
  void Pump(Event event) {
    if (!coordinator_.has_value()) return;
    event(*coordinator_);
    for (CoordinatorEffect& effect : coordinator_->TakeEffects()) {
      std::visit([this](auto& one) { Carry(std::move(one)); }, effect);
    }
  }
  void Carry(SendControl effect);
  void Carry(CloseControl effect) { server_->Close(effect.connection); }
  void Carry(ConnectFeed effect);
  void Carry(FeedUntil effect);
  void Carry(FeedEvaluation effect) { feeder_->FeedEvaluation(effect.first, effect.micro_batches); }
  void Carry(Persist effect);
  void Carry(StateCollected effect);
  void Carry(LogLine effect) { parts_.logger->Log(effect.severity, effect.text); }
  void Carry(RunEnded effect);
  void Note(const PlanDecided& decided);
  void Note(const BarrierPassed& barrier);
  void Note(const EvaluationRecorded& evaluation);
  template <typename Other>
  void Note(const Other&) {}

  absl::Status SaveCheckpoint(const StateCollected& collected);
  void Abort(const absl::Status& status);
  void StopTrainingClock();
  int64_t TrainingNs() const;
  int64_t SamplesUntil(int64_t sequence) const;
  RunView View();
  void UpdateLoss(const Telemetry& telemetry);
  RunSummary Summarise() const;

  TrainingJob job_;
  TrainerParts parts_;
  EventLoop loop_;
  BufferPool pool_;
  std::string token_;
  std::optional<Coordinator> coordinator_;
  std::unique_ptr<CentralControl> server_;
  std::unique_ptr<Feeder> feeder_;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;
  bool workers_watched_ = true;

  int64_t begin_ns_ = 0;
  int64_t training_ns_ = 0;
  int64_t training_since_ns_ = 0;  // 0: not training
  ProcessorTime processor_time_;   // of central, while training
  int64_t plan_since_ns_ = 0;      // training time before the plan that holds
  Timeline timeline_;
  double recent_loss_ = std::numeric_limits<double>::quiet_NaN();
  Telemetry loss_seen_;    // when recent_loss_ was formed
  Telemetry epoch_seen_;   // at the last evaluation
  double epoch_loss_ = 0;  // mean training loss between the last two evaluations
  std::optional<EvaluationRecorded> evaluation_;
  TrainingOutcome outcome_;
  absl::Status result_;
};

}  // namespace runnel
