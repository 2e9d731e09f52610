#pragma once

// The run as a state machine: routes what happens to the machine that it is about, and holds the
// plan and the step. Events in, effects out; no thread, no clock, no file. The trainer
// (central/run/trainer.h) carries effects out.
//
//   Roster -> [Measurement] -> Move -> Barrier <-> at the barrier -> the end
//   who joins   what devices   the first   train,      [Measurement], then
//               take           plan        evaluate    Move or a training change
//
// One machine is in charge at a time; StateCollection works beside the others. A machine has no
// idea of the others: it is shown the ActivePlan and the Roster, appends its effects, and its
// answer says what came of the event.
//
// To add a machine (recovery, replication):
//   1. a class in a file of its own here, with a test in tests/central/run/machines: one method an
//      event, which appends to RunEffects; `under_way()`; who answered is kept by stage or device;
//   2. a member here, and the effects that it needs and that nobody has yet in run_effects.h;
//   3. a line in Received for each message that is its own, and one in Gone if it minds losses
//      (recovery: where Gone ends the run because a stage is lost, begin a Move instead, from the
//      stages that are left and the last state that StateCollection had whole);
//   4. where it comes in at a barrier: a line in GoOnAtBarrier, which holds their order.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/planning/planner.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/barrier.h"
#include "central/run/machines/measurement.h"
#include "central/run/machines/move.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "central/run/machines/state_collection.h"
#include "proto/base/batching.h"

namespace runnel {

struct CoordinatorOptions {
  RosterOptions roster;
  MeasurementOptions measurement;
  BarrierOptions barriers;
  // What all stages are told alike, whatever the plan: model, training, what computes, shaping.
  PrepareStage stage;
  NumberFormat format;  // of the recipe
  Generation first_generation = Generation(1);
  std::string link_token;
  ModelState initial_state;          // all layers
  int64_t first_step = 0;            // > 0: resumed
  bool needs_profile = false;        // devices are measured before the first plan
  bool plan_only = false;            // end when the plan is made
  bool collect_at_barriers = false;  // check-points are wanted
  Planner* planner = nullptr;        // borrowed
};

class Coordinator {
 public:
  // InvalidArgument: the training settings make no sense.
  static absl::StatusOr<Coordinator> Create(CoordinatorOptions options);

  // Events.
  void Joined(ConnectionId connection, const WorkerHello& hello, bool local);
  void Received(ConnectionId connection, const WorkerMessage& message);
  void Gone(ConnectionId connection, const absl::Status& status);
  // A feed link failed for good.
  void FeedFailed(const absl::Status& status);
  // The user wants to end at the next barrier.
  void StopAtBarrier();
  // Something outside went wrong: a file that cannot be written, a process that ended.
  void Abort(const absl::Status& status);
  // Nobody else will join in time.
  void JoinTimedOut(int64_t waited_s);

  RunEffects TakeEffects();

  const Plan& plan() const { return active_.plan; }
  const std::vector<StageStatus>& stages() const { return active_.stages; }
  const std::vector<Device>& devices() const { return roster_.devices(); }
  const Batching& batching() const { return batching_; }
  bool running() const { return !ended_ && (barrier_.training() || barrier_.evaluating()); }
  bool joining() const { return !ended_ && !roster_.complete(); }
  // The last barrier that all stages have reached.
  int64_t step() const { return step_; }

 private:
  Coordinator(CoordinatorOptions options, Batching batching);

  // One overload a message; `device` takes part.
  void Handle(int device, const ProfileReport& report);
  void Handle(int device, const ProfileFailed& failed);
  void Handle(int device, const LayersFetched& fetched);
  void Handle(int device, const StagePrepared& prepared);
  void Handle(int device, const StageReady& ready);
  void Handle(int device, const StageFailed& failed);
  void Handle(int device, const BarrierReached& reached);
  void Handle(int device, const EvaluationDone& done);
  void Handle(int device, const Snapshot& snapshot);
  void Handle(int device, const Telemetry& telemetry);
  void Handle(int, const WorkerHello&) {}

  void Begin();
  void MakeFirstPlan();
  std::vector<DeviceFacts> Facts() const;
  PrepareStage StageMessage() const;
  PlanDecided Decided(Plan plan, const std::vector<DeviceTimes>& times) const;
  void GoOnMeasured();
  void ArriveAtBarrier(int64_t step);
  void GoOnAtBarrier();
  void AskPlanner();
  void ChangeTo(ChangePlan change);
  // At a barrier where nothing else is to be done.
  void Train();
  void CollectFinal();
  void End(absl::Status status, bool stopped_by_user);
  bool has_plan() const { return !active_.plan.stages.empty(); }
  // Whether the run cannot go on without this device.
  bool IsNeeded(int device) const;

  CoordinatorOptions options_;
  Batching batching_;
  RunEffects effects_;
  Roster roster_;
  Measurement measurement_;
  Move move_;
  Barrier barrier_;
  StateCollection collection_;
  ActivePlan active_;
  int64_t step_;  // the last barrier that all stages have reached
  bool stop_requested_ = false;
  bool finishing_ = false;  // the last state is being collected
  bool ended_ = false;
};

}  // namespace runnel
