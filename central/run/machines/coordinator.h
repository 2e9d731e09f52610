#pragma once

// The run as a state machine: routes each event to the machine that it is about, and holds the
// plan. Events in, effects out; no thread, no clock, no file. The trainer
// (central/run/trainer.h) carries effects out.
//
//   Roster        who takes part
//   Gathering     how many the first plan waits for
//   Measuring     what paths to workers on other hosts carry, and how long layers take on each
//                 device: before the first plan, and again at barriers
//   Move          how a plan comes to hold: the first one and every later one
//   EarlyStop     ends a run whose evaluations bring no new best
//   Barrier       trains up to the next barrier and evaluates there; holds where the run is
//   BarrierStates the whole model's state at a barrier, collected beside the others' work, and its
//                 evaluations, where they are worth their price
//   DryRuns       measures at barriers what codecs add to the gradients' noise
//   Detector      finds lost workers, and the reason
//   Replication   has stages keep their states of a barrier among themselves, while they train
//   Recovery      brings training back after losses of workers
//   ProgramLists  lists the instructions of a plan that is only shown
//   Traces        what all devices do within a window
//
// At a barrier, in this order: evaluation, DryRuns, TrainingRules (what it proposes is journalled and goes
// out with the next grant), check-point, Planner (keep, measure first, or move).
//
// A machine knows nothing of the others: it is shown the ActivePlan and the Roster, appends its
// effects, and answers with the outcome of the event.
//
// When a worker is lost whose stage is needed, or the GPU or DSP that computed it, each machine
// gives up what is under way, the step is that of the state that Recovery goes back to, and a Move
// brings a plan over the others into force.
//
// To add a machine:
//   1. a class in a file of its own here, with a test in tests/central/run/machines: one method an
//      event, which appends to RunEffects; who answered is kept by stage or device;
//   2. a member of Coordinator, and in run_effects.h the effects that no machine has yet;
//   3. an overload of Handle for each message that is the new machine's;
//   4. a line in GoOnAtBarrier if it works at barriers, and one in Recover if it minds losses.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/planning/planner.h"
#include "central/planning/rules/training_rules.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/barrier.h"
#include "central/run/machines/barrier_states.h"
#include "central/run/machines/early_stop.h"
#include "central/run/machines/gathering.h"
#include "central/run/machines/losses/detector.h"
#include "central/run/machines/losses/recovery.h"
#include "central/run/machines/losses/replication.h"
#include "central/run/machines/losses/standstill.h"
#include "central/run/machines/measuring/dry_runs.h"
#include "central/run/machines/measuring/measuring.h"
#include "central/run/machines/measuring/traces.h"
#include "central/run/machines/move.h"
#include "central/run/machines/program_lists.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/roster_facts.h"
#include "central/run/machines/run_course.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/training/batching.h"
#include "proto/transport/control/members.h"

namespace runnel {

struct CoordinatorOptions {
  RosterOptions roster;
  MeasurementOptions measurement;
  BarrierOptions barriers;
  // The part of the message that is the same for all stages and plans: model, training, backend,
  // shaping.
  PrepareStage stage;
  NumberFormat format;                        // of the recipe
  int64_t join_patience_ns = 60'000'000'000;  // how long workers are waited for
  Generation first_generation = Generation(1);
  std::string link_token;
  ModelState initial_state;          // all layers; empty: each stage draws its own from the seed
  int64_t first_step = 0;            // > 0: resumed
  bool needs_profile = false;        // devices are measured before the first plan
  bool profiles_first_only = false;  // and of them the first one alone
  bool plan_only = false;            // end when the plan is made
  bool lists_programs = false;       // and its stages have said what they would run
  bool collect_at_barriers = false;  // check-points are wanted
  // Evaluations go by collected states, beside the training (StateUse::evaluation); else through
  // the pipeline, which stands meanwhile.
  bool evaluates_beside = false;
  EvaluationPaceOptions evaluation_pace;
  bool evaluate_only = false;          // for a run without a step: its state is not collected again
  bool recovers = true;                // false: a lost worker ends the run
  std::vector<int64_t> layer_bytes{};  // bytes of the state, by layer
  int64_t replicate_every = -1;        // ReplicationOptions::every
  DryRunOptions dry_runs;
  std::string dry_runs_state = {};  // of a check-point; checked
  // Decided before this stretch of the run: of a resumed run, or of a replay, which knows them all.
  std::vector<TrainingChange> changes;
  TrainingRules* rules = nullptr;  // borrowed; null: nothing changes
  Planner* planner = nullptr;      // borrowed
  EarlyStop early_stop;            // what it has seen before
};

class Coordinator {
 public:
  // InvalidArgument: the training settings make no sense.
  static absl::StatusOr<Coordinator> Create(CoordinatorOptions options);

  // Events.
  // A worker may also come while the run trains: one that was lost, or that nobody knows. The
  // planner is shown it at the next barrier.
  void Joined(ConnectionId connection, const WorkerHello& hello, bool local);
  void Received(ConnectionId connection, const WorkerMessage& message);
  void Gone(ConnectionId connection, const absl::Status& status);
  // The timer of the last SetTimer has fired; called once in the beginning. moved_bytes: bytes of
  // all states under way.
  void TimerFired(int64_t now_ns, int64_t moved_bytes);
  // A worker's control connection broke, and the stream has another one.
  void Broken(ConnectionId connection, const absl::Status& why, int64_t now_ns);
  void Resumed(ConnectionId connection, int64_t now_ns);
  void PortProbed(ConnectionId connection, PortAnswer answer, int64_t now_ns);
  // Result of the evaluation of the state collected at `step` of the plan of this generation.
  void Evaluated(int64_t step, Generation generation,
                 const absl::StatusOr<EvaluationFigures>& figures);
  // A feed link failed for good.
  void FeedFailed(const absl::Status& status);
  // The user wants to end at the next barrier.
  void StopAtBarrier();
  // Something outside went wrong: a file that cannot be written, a process that ended.
  void Abort(const absl::Status& status);
  // A worker that central started has ended before it joined. Unavailable: it was killed, and is
  // started again; another error ends the run.
  void EndedBeforeJoining(const std::string& name, const absl::Status& status);
  // Nobody else will join in time.
  void JoinTimedOut(int64_t waited_s);

  // ---- an operator's orders (coordinator_members.cc)
  MemberList Members() const { return MembersOf(roster_, active_, step(), course_.is_to_pause()); }
  // NotFound: there is no worker of this name. FailedPrecondition: it cannot leave, why.
  absl::Status Drain(const std::string& name);
  // true: training stands from the next barrier on. false: it goes on.
  void Pause(bool paused);
  // The next barrier plans anew. Errors as Planner::OrderReplan's.
  absl::Status Replan();
  // Errors as those of Traces.
  absl::Status BeginTrace(int64_t now_ns, int64_t window_ns) {
    return traces_.Begin(now_ns, window_ns, step(), active_, roster_, effects_);
  }
  absl::StatusOr<std::optional<RunTrace>> TakeTrace(int64_t now_ns) const {
    return traces_.Take(now_ns);
  }

  RunEffects TakeEffects();

  const Plan& plan() const { return active_.plan; }
  const std::vector<StageStatus>& stages() const { return active_.stages; }
  const std::vector<Device>& devices() const { return roster_.devices(); }
  // Workers that dialled in and are there to stay.
  int64_t dialling_workers() const { return roster_.dialling_workers(); }
  const Batching& batching() const { return barrier_.batching(); }
  bool running() const {
    return !ended() && (barrier_.training() || barrier_.evaluating() || dry_runs_.under_way());
  }
  // Workers are waited for: those that the run begins with, or one that is started again.
  bool joining() const {
    return !ended() && (!roster_.complete() || gathering_.waits() || recovery_.waiting());
  }
  const Measuring& measuring() const { return measuring_; }
  // Something is measured for which training stands, or the start waits.
  bool waits_to_measure() const {
    return stands_to_measure() &&
           (measuring_.links().under_way() || measuring_.devices().under_way());
  }
  // The last state is being collected; from this device it is still to come.
  bool finishing() const { return course_.collects_last(); }
  bool AwaitsState(int device) const { return states_.collection().Awaits(device); }
  // Training stands until the state of a barrier, or an evaluation beside it, is there.
  bool waits_for_states() const {
    return (stands_for_states() || measuring_.waits()) && states_.collection().under_way();
  }
  bool waits_for_evaluation() const {
    return stands_for_states() && !states_.collection().under_way() &&
           states_.evaluations().under_way();
  }
  // A line for people by stage of the plan: its backend, and the reason for it.
  std::vector<std::string> ProcessorLinesOf(const Plan& plan) const {
    return ProcessorLines(roster_, plan, options_.plan_only);
  }
  // Listings by stage, for a run that lists programs, or a plan with a stage on several processors.
  const std::vector<ProgramListing>& programs() const { return program_lists_.listings(); }
  const Move& move() const { return move_; }
  // Of those that hold at this step, which the run has reached.
  std::vector<TrainingChange> ChangesAt(int64_t step) const;
  const ReplicationSummary& replication() const { return replication_.summary(); }
  // That stages lost to evaluations beside them so far.
  double seconds_lost_to_evaluations() const { return states_.evaluations().lost_seconds(); }
  // Tells which links of the plan are relayed now. marked: stages() with StageStatus::relayed.
  void SetRelayed(const std::vector<StageStatus>& marked);
  // The last barrier that all stages have reached.
  int64_t step() const { return barrier_.reached(); }
  // Decided up to the barrier at this step, and what the rules had seen there.
  RuleStates RuleStatesAt(int64_t step) const;

 private:
  using StandsFor = RunCourse::StandsFor;

  Coordinator(CoordinatorOptions options, const Batching& batching);

  // ---- one overload a message; `device` takes part
  void Handle(int device, const ProfileReport& report);
  void Handle(int device, const ProcessorList& list) { roster_.SetProcessors(device, list); }
  void Handle(int device, const ProfileFailed& failed);
  void Handle(int device, const ProfileProgress& progress) { measuring_.Add(device, progress); }
  void Handle(int device, const WayMeasured& measured);
  void Handle(int device, const ProbePiece& piece);
  void Handle(int device, const LayersFetched& fetched);
  void Handle(int device, const StagePrepared& prepared);
  void Handle(int device, const StageReady& ready);
  void Handle(int device, const StageFailed& failed);
  void Handle(int device, const BarrierReached& reached);
  void Handle(int device, const EvaluationDone& done);
  void Handle(int device, const DryRunDone& done);
  void Handle(int device, const Snapshot& snapshot);
  void Handle(int device, const Telemetry& telemetry);
  void Handle(int device, const Leaving& leaving);
  void Handle(int, const WorkerHello&) {}
  void Handle(int device, const Heartbeat& heartbeat) {
    detector_.AddHeartbeat(roster_.device(device).connection, heartbeat);
    traces_.AddHeartbeat(roster_.device(device).connection, heartbeat);
  }
  void Handle(int device, const Replicated& replicated);
  void Handle(int device, const ProgramReport& report);
  void Handle(int device, const TraceReport& report) {
    traces_.Add(device, roster_.device(device).connection, report);
  }

  // ---- what machines are shown
  std::vector<DeviceFacts> Facts() const;
  const std::vector<DeviceTimes>& Times() const { return measuring_.devices().times(); }
  BarrierReport Report() const;
  PrepareStage StageMessage() const;
  bool has_plan() const { return !active_.plan.stages.empty(); }
  bool ended() const { return course_.ended(); }
  // Not only where an order or the end has stopped training.
  bool IsRegularBarrier() const { return barrier_.IsBarrier(step(), options_.changes); }
  // At this barrier, although it is not the last one.
  bool is_to_end() const { return course_.is_to_stop() || options_.early_stop.is_due(); }
  bool states_under_way() const {
    return states_.collection().under_way() || replication_.under_way();
  }
  bool stands_to_measure() const { return !has_plan() || course_.Stands(StandsFor::kMeasuring); }
  bool stands_for_states() const { return finishing() || course_.Stands(StandsFor::kStates); }

  // ---- how a plan comes to hold (coordinator_plans.cc)
  void Begin();
  // Before the first plan, with time.
  void Gather(int64_t now_ns);
  // A device has come before the first plan, or in a recovery that has no plan.
  void MeasureNewcomer(int device);
  // What is ordered of Measuring; then the first plan, the one that a recovery waits for, or the
  // planner at a barrier.
  void Measure();
  // The first plan, or that of a recovery, now that other workers are there.
  void PlanAgain();
  void MakeFirstPlan();
  void ChangeTo(ChangePlan change);
  // The stages of a plan stand at the barrier again, after a move or without one.
  void GoOnFromMove();

  // ---- from barrier to barrier
  void ArriveAtBarrier(int64_t step);
  void GoOnAtBarrier();
  // At a barrier that is not the last: collects its state if somebody needs it, and goes on.
  void CollectAtBarrier();
  // Whether this barrier, not the last, has an evaluation beside the training.
  bool EvaluatesBesideHere();
  void AskTrainingRules();
  void AskPlanner();
  // Grants training at a barrier where nothing else is to be done.
  void Train();
  void CollectFinal();
  // Once the last state is there and evaluated.
  void EndIfComplete();
  void End(absl::Status status, bool stopped_by_user);
  // A stage failed, and there is no other choice. Once a plan has held, what does not fit a worker
  // is no more the user's to change before the run.
  void EndFor(int device, const StageFailed& failed);

  // ---- losses of workers (coordinator_losses.cc)
  void Lose(const Detector::Finding& finding);
  // Ends a run in which nothing has moved for too long.
  void CheckStandstill(int64_t now_ns, int64_t moved_bytes);
  // The current wait, for people.
  std::string PhaseText() const;
  // Whether the run cannot go on without this device, or not as it is planned.
  bool IsNeeded(int device) const;

  // ---- who comes and goes while the run trains (coordinator_members.cc)
  void Enter(ConnectionId connection, const WorkerHello& hello);
  // The device goes at once if it has no stage, else when a plan without it is in force.
  // FailedPrecondition: it cannot go, with the reason.
  // reason: the worker's own; empty: none.
  absl::Status BeginLeaving(int device, const std::string& reason);
  // At a barrier: moves layers away from devices that leave. False: no device leaves, or none can.
  bool MoveFromLeaving();
  // The same while the stages stand for a state or an evaluation beside them, to which they return.
  void MoveFromLeavingMeanwhile();
  // The same while an operator has the run stand.
  void MoveFromLeavingInPause();

  // ---- how training goes on without them (coordinator_recovery.cc)
  // A device that is needed has left, or lost the backend of this name and computes without.
  void Recover(int device, absl::string_view why, const std::string& lost_backend = "");
  // The device failed, and no plan may use it any more.
  void RecoverWithout(int device, absl::string_view why);
  void Recover(LostStage lost);
  // A device refused its part of a recovery, or failed as soon as that was done: the next choice,
  // if there is one.
  void ChooseAgain(int device, const StageFailed& failed);
  // A stage came upon a value that is no finite number.
  void RecoverFromNotFinite(int device, const StageFailed& failed);
  // Whether training goes on although a stage failed.
  bool SurvivesLossOf(const StageFailed& failed) const;
  // Takes all machines back to the barrier from which training goes on.
  void GoBack();
  void PlanRecovery();
  // No plan fits the workers that are there, why: a lost one of this host is started again, else
  // those that dial in are waited for. Where nobody can come, it ends the run.
  void AwaitWorkers(const absl::Status& why);
  // The remaining workers' replicas of a barrier, if the run can go on from there.
  std::optional<ReplicatedBarrier> Replicas() const;
  // Collects, at the barrier to which the stages went back, the states that a loss prevented.
  void CollectAgain();

  CoordinatorOptions options_;
  RunEffects effects_;
  Roster roster_;
  Gathering gathering_;
  LossPrice loss_price_;
  Detector detector_;
  Standstill standstill_;
  Measuring measuring_;
  Move move_;
  Barrier barrier_;
  BarrierStates states_;
  Replication replication_;
  Recovery recovery_;
  ProgramLists program_lists_;
  DryRuns dry_runs_;
  Traces traces_;
  ActivePlan active_;
  RunCourse course_;
};

}  // namespace runnel
