#pragma once

// What Trainer is made of; included by trainer*.cc only.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/records/journal_thread.h"
#include "central/run/checkpoints/best_checkpoint.h"
#include "central/run/checkpoints/run_checkpoints.h"
#include "central/run/evaluator.h"
#include "central/run/feed/feed.h"
#include "central/run/machines/coordinator.h"
#include "central/run/relay_watch.h"
#include "central/run/run_record.h"
#include "central/run/trainer.h"
#include "central/run/waiting.h"
#include "central/run/workers/local_workers.h"
#include "proto/transport/link/event_loop.h"
#include "proto/transport/link/port_probe.h"

namespace runnel {

// How a run ends. One thread.
class RunEnd {
 public:
  // Something is wrong; the first such thing is how the run ends, whatever the coordinator says.
  void Fail(const absl::Status& status) { status_.Update(status); }
  void End(const RunEnded& end) {
    outcome_.step = end.step;
    outcome_.stopped_by_user = end.stopped_by_user;
    Fail(end.status);
    ended_ = true;
  }

  // Nothing is wrong yet.
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  // The coordinator has said so.
  bool ended() const { return ended_; }
  TrainingOutcome& outcome() { return outcome_; }

 private:
  TrainingOutcome outcome_;
  absl::Status status_;
  bool ended_ = false;
};

// Connections and the writer of check-points report on threads of their own, and StopAtBarrier may
// be called on any: all post to loop_. All else is on the thread of Run.
class Trainer::Impl final : public CentralControlObserver {
 public:
  Impl(TrainingJob job, TrainerParts parts)
      : job_(std::move(job)), parts_(parts), loop_(parts.clock), feed_(&loop_) {}
  ~Impl() override;

  absl::StatusOr<TrainingOutcome> Run();
  int64_t step() const { return coordinator_.has_value() ? coordinator_->step() : job_.first_step; }
  void StopAtBarrier() {
    checkpoints_.StopWaiting();
    loop_.Post([this] { Tell([](Coordinator& coordinator) { coordinator.StopAtBarrier(); }); });
  }

  bool LosesWeights() const {
    return setup().settings.checkpoint_dir.empty() && !job_.evaluate_only && !job_.plan_only;
  }
  void Cancel() {
    loop_.Post([this] { Abort(absl::CancelledError("the run was cancelled")); });
  }

  // Asks the coordinator on the thread of Run.
  template <typename Answer, typename AskFn>
  Answer Ask(AskFn ask) {
    struct Shared {
      std::mutex mutex;
      std::condition_variable answered;
      std::optional<Answer> answer;
    };
    const auto shared = std::make_shared<Shared>();
    loop_.Post([this, shared, ask] {
      Tell([&](Coordinator& coordinator) {
        const std::lock_guard<std::mutex> lock(shared->mutex);
        shared->answer = ask(coordinator);
      });
      shared->answered.notify_all();
    });
    std::unique_lock<std::mutex> lock(shared->mutex);
    shared->answered.wait_for(lock, kAnswerPatience, [&] { return shared->answer.has_value(); });
    if (shared->answer.has_value()) return *std::move(shared->answer);
    return absl::UnavailableError("the run does not answer: it begins, ends, or its host is busy");
  }

  absl::StatusOr<MemberList> Members();
  absl::StatusOr<std::string> Trace(int64_t window_ms);
  absl::StatusOr<Planner::LateAnswer> WhatIf(const std::string& assumption);
  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override;
  bool OnBroken(ConnectionId id, const absl::Status& status) override {
    loop_.Post([this, id, status] {
      Tell([&](Coordinator& coordinator) {
        coordinator.Broken(id, status, parts_.clock->NowNanos());
      });
    });
    return true;
  }
  void OnResumed(ConnectionId id) override {
    loop_.Post([this, id] {
      Tell([&](Coordinator& coordinator) { coordinator.Resumed(id, parts_.clock->NowNanos()); });
    });
  }
  void OnGone(ConnectionId id, const absl::Status& status) override {
    const absl::Status reason =
        status.ok() ? absl::UnavailableError("it closed its control stream") : status;
    loop_.Post([this, id, reason, now_ns = parts_.clock->NowNanos()] {
      const auto heard = heard_ns_.extract(id);
      record_->recoveries().Lose(heard.empty() ? 0 : now_ns - heard.mapped());
      Tell([&](Coordinator& coordinator) { coordinator.Gone(id, reason); });
    });
  }

 private:
  // How long an operator's call waits for an answer.
  static constexpr std::chrono::seconds kAnswerPatience{3};

  const RunSetup& setup() const { return *job_.setup; }
  absl::Status StartWorkers();
  absl::Status MakeEvaluator();
  void Receive(ConnectionId id, const WorkerMessage& message);
  void Tick();
  void TimerFired();
  void Written(const CheckpointEnd& end);
  void StopIfEnded();
  void Abort(const absl::Status& status);

  // Gives the coordinator an event and carries out what it wants.
  template <typename Event>
  void Tell(Event event) {
    if (!coordinator_.has_value()) return;
    event(*coordinator_);
    for (RunEffect& effect : coordinator_->TakeEffects()) {
      std::visit([this](auto& one) { CarryOut(std::move(one)); }, effect);
    }
  }
  void CarryOut(SendControl effect);
  void CarryOut(CloseControl effect);
  void CarryOut(ProbePort effect);
  void CarryOut(SetTimer effect) {
    loop_.PostAfter(effect.at_ns - parts_.clock->NowNanos(), [this] { TimerFired(); });
  }
  void CarryOut(AllowRelay effect) { server_->AllowRelay(std::move(effect.plan)); }
  void CarryOut(ConnectFeed effect);
  void CarryOut(StopFeed) {
    record_->clock().Stop();
    feed_.Stop();
  }
  void CarryOut(StartLocalWorker effect);
  void CarryOut(RecoveryReached effect);
  void CarryOut(FeedUntil effect);
  void CarryOut(FeedEvaluation effect) {
    // Training time excludes evaluations.
    job_.evaluate_only ? record_->clock().Start() : record_->clock().StartEvaluation();
    feed_.feeder()->FeedEvaluation(effect.first, effect.micro_batches);
  }
  void CarryOut(FeedDryRun effect) {
    feed_.feeder()->FeedDryRun(effect.first, effect.training_first, effect.micro_batches);
  }
  void CarryOut(Persist effect);
  void CarryOut(StateCollected effect);
  void CarryOut(LogLine effect) {
    parts_.display->MakeWay();
    parts_.logger->Log(effect.severity, effect.text);
    if (effect.severity == Severity::kDebug) return;
    const bool is_note = effect.severity == Severity::kInfo;
    parts_.display->AddEvent(
        {is_note ? EventKind::kNote : EventKind::kWarning, step(), std::move(effect.text)});
  }
  void CarryOut(RunEnded effect);
  // What a journal record means for the display and the summary.
  void Follow(const PlanDecided& decided);
  void Follow(const BarrierPassed& barrier) {
    record_->clock().Stop();
    record_->AddBarrier(barrier.step, Stages());
  }
  void Follow(const EvaluationRecorded& evaluation);
  void Follow(const NoiseMeasured& noise) { record_->AddNoise(noise); }
  void Follow(const Recovered& recovered) {
    record_->GoBackTo(recovered.step);
    parts_.display->GoBackTo(recovered.step);
    lost_ = absl::StrCat("without ", absl::StrJoin(recovered.workers, ", "));
  }
  void Follow(const WorkerLost& lost) {
    parts_.display->AddEvent({EventKind::kLost, step(), lost.name + " is lost", lost.reason});
  }
  void Follow(const TrainingChanged& changed) {
    parts_.display->AddEvent({EventKind::kTraining, step(), ToString(changed.change), changed.why});
  }
  template <typename Other>
  void Follow(const Other&) {}
  std::vector<StageStatus> Stages() const { return relays_.Mark(coordinator_->stages()); }

  // ---- what is shown (trainer_view.cc)
  RunFacts Facts() const;
  RunView View();
  RunPhase Phase(const RunView& view, bool is_paused) const;
  std::vector<WorkerView> Workers(const MemberList& list) const;
  void ShowPlan(const PlanDecided& decided, const std::string& links, const std::string& why);

  TrainingJob job_;
  TrainerParts parts_;
  ThreadLoop loop_;
  Feed feed_;
  std::optional<Coordinator> coordinator_;
  std::optional<RunRecord> record_;
  std::unique_ptr<CentralControl> server_;
  std::vector<std::string> join_commands_;  // none: nobody dials in
  Waiting waiting_;                         // as of the last tick
  std::string lost_;                        // why the next plan is made, if it is a recovery's
  RelayWatch relays_;
  std::map<ConnectionId, int64_t> heard_ns_;  // when each worker was last heard of
  LocalWorkers local_workers_;
  std::vector<int64_t> layer_bytes_;  // of the state, by layer
  RunEnd end_;
  BestCheckpoint best_;
  // Last: their threads post to the loop.
  PortProbe ports_;
  std::optional<JournalThread> journal_;
  RunCheckpoints checkpoints_;
  std::unique_ptr<Evaluator> evaluator_;  // null: evaluations go through the pipeline
};

}  // namespace runnel
