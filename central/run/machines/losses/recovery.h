#pragma once

// Brings training back after the loss of workers with stages, or of a GPU or DSP (then the worker
// stays, and its stage goes on on its CPU). Training goes back to the latest barrier whose whole
// state central or the remaining workers have (replication.h). A plan over these workers comes into
// force by the protocol of any plan (move.h), and the later steps are trained again from inputs
// drawn by their sequence. Each layer's state comes from its new worker's own copy, else from
// another worker, else from central.
//
//   waiting    no worker is left on central's host, where stage 0 must be: one is started again
//   replacing  a plan over the remaining workers comes into force
//   replaying  that plan trains the lost steps again
//
// A loss during a recovery starts it again, with another generation; it counts as one recovery
// until the new plan has trained a micro-batch.
//
// Pure: events in, effects out. Times are by central's clock.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "central/planning/barrier_report.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/losses/central_copy.h"
#include "central/run/machines/losses/replication.h"
#include "central/run/machines/losses/start_attempts.h"
#include "central/run/machines/move.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

struct RecoveryOptions {
  bool is_possible = true;  // false: a lost worker ends the run
  // bytes of the state, by layer; empty: states cost nothing
  std::vector<int64_t> layer_bytes = {};
  bool has_replicas = false;  // stages replicate barriers as well
};

// A stage that the run needs, and its worker is gone, or the device that computed it, or the worker
// failed.
struct LostStage {
  int device = 0;            // has left the roster, or lost `backend`
  std::string why;           // reason, for people
  int64_t step = 0;          // the last barrier that all stages had reached
  Sequence reached;          // micro-batches below were trained
  std::string backend = {};  // that is lost; empty: the worker is gone, or failed
  bool failed = false;       // the worker is there and could not go on
};

class Recovery {
 public:
  // Backends that may be lost without a barrier in between.
  static constexpr int kMostInVain = 10;

  // initial: of all layers at first_step; empty: stages draw it from the seed.
  Recovery(RecoveryOptions options, int64_t first_step, ModelState initial)
      : is_possible_(options.is_possible),
        copy_(std::move(options.layer_bytes), options.has_replicas, first_step,
              std::move(initial)) {}

  // ---- the state to go back to

  // As CentralCopy's. Where no recovery is possible, no state is wanted or kept.
  bool WantsState(const ActivePlan& active, const std::vector<DeviceFacts>& devices,
                  int64_t now_ns) {
    return is_possible_ && copy_.WantsState(active, devices, now_ns);
  }
  void BeginCollecting(int64_t now_ns) { copy_.BeginCollecting(now_ns); }
  void Keep(int64_t step, ModelState state, int64_t now_ns) {
    if (is_possible_) copy_.Keep(step, std::move(state), now_ns);
  }
  int64_t central_step() const { return copy_.step(); }
  int64_t central_reached_ns() const { return copy_.reached_ns(); }
  const ModelState& state() const { return copy_.state(); }
  // The barrier to go back to: since Lose that of the replicas, or central's.
  int64_t step() const { return replicas_.has_value() ? replicas_->step : copy_.step(); }

  // ---- the course of a recovery

  // replicas: the remaining workers' copies of the last replicated barrier. Unavailable: the run
  // cannot recover.
  absl::Status Lose(const LostStage& lost, const std::optional<ReplicatedBarrier>& replicas,
                    const Roster& roster, RunEffects& effects);
  // Workers have copies of a barrier, and one of them refused its part of a recovery from there:
  // that it goes on from central's state instead. False: it does already.
  bool DropReplicas();
  // A value that is no finite number came up at the last barrier's `step` or behind it. False: it
  // did before, and training has not got past it since.
  bool SurvivesNotFinite(int64_t step);
  // A local worker has taken its seat again. True: it was waited for.
  bool Return(const std::string& name);
  // No plan does without the lost local worker of this name: it is started again. Unavailable: too
  // often.
  absl::Status Await(const std::string& name, RunEffects& effects);
  // The one that is waited for has ended: it is started once more. Unavailable: too often.
  absl::Status EndBeforeJoining(RunEffects& effects);
  // The order that brings the plan `decided` over the remaining workers into force. `common`:
  // MoveOrder's.
  MoveOrder Order(PlanDecided decided, PrepareStage common, RunEffects& effects);
  // All stages of the new plan are prepared.
  void Prepared(RunEffects& effects);
  // Takes telemetry of the current plan's first stage.
  void AddTelemetry(const Telemetry& telemetry, RunEffects& effects);
  void ReachBarrier() {
    starts_ = {};
    backends_lost_ = 0;
  }

  bool waiting() const { return state_of_it_ == State::kWaiting; }
  // The name of the local worker that is waited for.
  const std::string& awaited() const { return awaited_; }
  bool replacing() const { return state_of_it_ == State::kReplacing; }
  // The plan over those that are left holds, and has trained nothing yet.
  bool beginning() const { return state_of_it_ == State::kBeginning; }
  // Unavailable: who was lost, and why no plan fits those that are left.
  absl::Status NoPlan(const absl::Status& why) const;

 private:
  enum class State : uint8_t {
    kIdle,
    kWaiting,
    kReplacing,
    kBeginning,  // the new plan holds and has not trained yet
    kReplaying
  };

  absl::Status StartAgain(RunEffects& effects);
  void Reach(RecoveryReached::Phase phase, RunEffects& effects) const;

  bool is_possible_;
  CentralCopy copy_;
  std::optional<ReplicatedBarrier> replicas_;  // to go back to; none: copy_
  State state_of_it_ = State::kIdle;
  std::vector<std::string> lost_;  // for people, since the recovery began
  std::string last_loss_;          // for people
  std::string awaited_;
  std::string started_;    // again, and has not joined since
  Sequence first_;         // that is trained again
  Sequence reached_;       // before the loss
  StartAttempts starts_;   // of workers of this host, since the last barrier
  int backends_lost_ = 0;  // since the last barrier
  std::optional<int64_t> not_finite_step_;
};

}  // namespace runnel
