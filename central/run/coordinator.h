#pragma once

// The run as a state machine (DESIGN 2.1): who is there, which plan holds, how far each stage may
// go, what is done at a barrier. Events in, effects out; no thread, no clock, no file. The trainer
// (trainer.h) carries effects out.
//
//   joining -> [profiling] -> preparing -> running <-> at a barrier (evaluate, snapshot) -> done
//                                 ^                      |
//                                 +---- moving layers <--+ [measuring devices again]

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/planning/planner.h"
#include "central/records/journal.h"
#include "central/records/stage_status.h"
#include "proto/base/batching.h"
#include "proto/base/log.h"
#include "proto/transport/control/control_channel.h"

namespace runnel {

// A worker that takes part.
struct Device {
  ConnectionId connection;
  WorkerHello hello;
  bool local = false;
  double processor_share = 1;  // ProfileReport's, of the last profile
};

// ---- effects

struct SendControl {
  ConnectionId connection;
  CentralMessage message;
};
struct CloseControl {
  ConnectionId connection;
};
// Connect the feed to the stage with the input and the one with the loss.
struct ConnectFeed {
  Generation generation;
  std::string link_token;
  std::string first_address;
  std::string last_address;
  Sequence first_sequence;
  int64_t window;  // micro-batches on their way to a stage
};
struct FeedUntil {
  Sequence limit;
};
struct FeedEvaluation {
  Sequence first;
  int64_t micro_batches;
};
// For the journal, and for people: plans, barriers, evaluations, losses of workers.
struct Persist {
  JournalRecord record;
};
// The whole model's state at a barrier. final: the run ends here.
struct StateCollected {
  int64_t step;
  bool final;
  ModelState state;
};
struct LogLine {
  Severity severity;
  std::string text;
};
// The run is over. OK: `step` was reached, or the user stopped it there.
struct RunEnded {
  absl::Status status;
  int64_t step;
  bool stopped_by_user;
};

using CoordinatorEffect = std::variant<SendControl, CloseControl, ConnectFeed, FeedUntil,
                                       FeedEvaluation, Persist, StateCollected, LogLine, RunEnded>;

struct CoordinatorOptions {
  ModelSpec model;
  TrainingSettings training;
  BarrierRule barriers;
  int64_t eval_samples = 0;
  int64_t first_step = 0;  // > 0: resumed
  int64_t stop_step = 0;   // optimizer steps from the run's start
  int workers = 1;         // all of them, local ones included
  bool plain_loop = false;
  bool plan_only = false;            // end when the plan is made
  bool collect_at_barriers = false;  // check-points are wanted
  std::string recipe;
  NumberFormat format;  // of the recipe
  std::string backend;
  std::vector<std::string> codecs;  // that the plan may name
  bool needs_profile = false;
  int64_t profile_repetitions = 5;
  // Longer than the turns in which a processor quota is given out: what a pipeline sees of it.
  double profile_burst_ms = 20;
  // The same for a part of the model (layer_profile.h): as long on all devices, whatever they need
  // for it.
  double profile_part_ms = 150;
  std::vector<LayerRange> profile_ranges;  // empty: each layer by itself
  Planner* planner = nullptr;              // borrowed
  Generation first_generation = Generation(1);
  LinkShaping shaping;
  std::string link_token;
  ModelState initial_state;
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

  std::vector<CoordinatorEffect> TakeEffects();

  const Plan& plan() const { return plan_; }
  const std::vector<Device>& devices() const { return devices_; }
  const Batching& batching() const { return batching_; }
  const std::vector<StageStatus>& stages() const { return stages_; }
  bool running() const { return phase_ == Phase::kRunning || phase_ == Phase::kEvaluating; }
  bool joining() const { return phase_ == Phase::kJoining; }
  bool ended() const { return phase_ == Phase::kEnded; }
  // The last barrier that all stages have reached.
  int64_t step() const { return step_; }

 private:
  enum class Phase : uint8_t {
    kJoining,
    kProfiling,
    kPreparing,
    kRunning,
    kEvaluating,
    kMeasuring,
    kMoving,
    kCollecting,
    kEnded
  };

  Coordinator(CoordinatorOptions options, Batching batching);

  absl::Status Fits(const WorkerHello& hello) const;
  void Refuse(ConnectionId connection, std::string reason);
  void Send(int stage, CentralMessage message);
  void Begin();
  void Measure();
  void Measured();
  void SendProfileRequest(int device);
  std::vector<LayerRange> RangesToMeasure() const;
  std::vector<LayerRange> Parts() const;
  void AskForProfiles();
  absl::Status TakeProfile(int device, const std::vector<double>& seconds);
  void CannotMeasure(int device, const std::string& reason);  // at a barrier: the run goes on
  void NextMeasurement(int device);                           // that device is done
  void MakePlan();
  void Prepare();
  void GrantNext();
  void AtBarrier();
  void Evaluate();
  void AfterEvaluation();
  void MeasureAndReplan();
  void Replan();
  void CarryOut(BarrierDecision decision);
  std::vector<DeviceFacts> FactsOfDevices() const;
  BarrierReport Report() const;
  bool BeginMove(ChangePlan change);
  void PrepareAside();
  void Prepared(const StagePrepared& prepared);
  void TakeMoveBack(absl::string_view why);
  void GoOn();
  PrepareStage StageMessage(const Plan& plan, size_t stage) const;
  std::string LinkToken(Generation generation) const;
  void ConnectTheFeed();
  void PersistPlan(const std::vector<DeviceTimes>& times);
  void ResetStages();
  void Collect(bool final);
  void CollectFinal();
  void End(absl::Status status, bool stopped_by_user);

  void On(int device, const ProfileReport& report);
  void On(int stage, const StageReady& ready);
  void On(int stage, const BarrierReached& reached);
  void On(int stage, const Snapshot& snapshot);
  void On(int stage, const EvaluationDone& done);
  void On(int stage, const Telemetry& telemetry);
  void On(int stage, const StageFailed& failed);
  void On(int stage, const LayersFetched& fetched);
  void On(int, const WorkerHello&) {}
  void On(int, const StagePrepared&) {}

  int DeviceOf(ConnectionId connection) const;
  int StageOfDevice(int device) const;
  bool Current(Generation generation) const { return generation == plan_.generation; }

  CoordinatorOptions options_;
  Batching batching_;
  std::vector<CoordinatorEffect> effects_;
  Phase phase_ = Phase::kJoining;
  std::vector<Device> devices_;
  std::vector<DeviceTimes> times_;  // by device; empty: nothing is measured
  std::vector<int> to_measure_;     // devices; the first one is asked
  bool measures_parts_ = false;     // all devices have their layers
  std::vector<int> have_layers_;
  Plan plan_;
  std::vector<StageStatus> stages_;
  std::vector<bool> ready_;
  std::vector<bool> at_barrier_;
  Sequence plan_first_;  // of plan_
  int64_t step_ = 0;     // last barrier that all have reached
  int64_t limit_ = 0;    // barrier that is granted
  bool stop_requested_ = false;
  int64_t next_eval_sequence_ = 0;
  std::vector<bool> lost_;  // by device: gone while it had no stage
  // Layers on their way to other devices.
  struct Move {
    Plan plan;  // the next one
    std::string why;
    std::vector<DeviceTimes> times;
    ModelState state;  // what was fetched
    int fetching = 0;  // stages of the old plan that have not handed over yet
    int preparing = 0;
  };
  std::optional<Move> move_;
  // Snapshots on their way, by step.
  struct Collection {
    ModelState state;
    int missing = 0;
    bool final = false;
  };
  std::map<int64_t, Collection> collections_;
};

}  // namespace runnel
