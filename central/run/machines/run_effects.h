#pragma once

// Effects of a run's state machines. Machines only name effects; the trainer
// (central/run/trainer.h) carries them out in order. `profile` carries out those of its Roster.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "central/records/journal.h"
#include "proto/base/log.h"
#include "proto/base/port_answer.h"
#include "proto/transport/control/control_channel.h"

namespace runnel {

struct SendControl {
  ConnectionId connection;
  CentralMessage message;
};
struct CloseControl {
  ConnectionId connection;
};
// Ask whether somebody listens at a worker's data port; the coordinator is told (PortProbed).
struct ProbePort {
  ConnectionId connection;  // the worker's control stream
  std::string data_address;
};
// Tell the coordinator when it is this time by central's clock (TimerFired). It asks for one timer
// at a time.
struct SetTimer {
  int64_t at_ns;
};
// Connect the feed to the stage with the input and the one with the loss.
struct ConnectFeed {
  Generation generation;
  LinkTarget first;
  LinkTarget last;  // the last stage's feed; equal to first if one stage has both
  Sequence first_sequence;
  int64_t window;  // micro-batches that may be on their way to a stage
};
// From now on, links of this plan whose ends cannot dial each other go by way of central.
struct AllowRelay {
  RelayPlan plan;
};
// The stages that it leads to are no more: the feed waits for the next ConnectFeed.
struct StopFeed {};
// Start a worker on central's host, under the name of one that was lost.
struct StartLocalWorker {
  std::string name;
  int64_t after_ms = 0;  // from now
};
struct FeedUntil {
  Sequence limit;
};
struct FeedEvaluation {
  Sequence first;
  int64_t micro_batches;
};
// Each of these micro-batches of the training twice, as dry sequences from `first`.
struct FeedDryRun {
  Sequence first;
  Sequence training_first;
  int64_t micro_batches;
};
// A record for the journal and for people: plans, barriers, evaluations, losses of workers.
// Decisions (plans, changes of training, recoveries) are on the disk before the effects behind them
// are carried out; other records are before the next decision and the next check-point.
struct Persist {
  JournalRecord record;
};
// Means over the test set.
struct EvaluationFigures {
  double accuracy = 0;
  double loss = 0;
  double seconds = 0;  // it took
  ClassCounts counts = {};
};
// The uses of a collected state. At least one is true.
struct StateUse {
  bool checkpoint = false;
  bool evaluation = false;
  bool final = false;     // the run ends with it
  bool recovery = false;  // training goes on from it if a worker is lost

  bool any() const { return checkpoint || evaluation || final || recovery; }
  bool weights_only() const { return !checkpoint && !final && !recovery; }
  friend bool operator==(const StateUse&, const StateUse&) = default;
};
// The whole model's state at a barrier. Without momentum if it is for an evaluation only. For an
// evaluation, the coordinator waits to be told what came of it (Evaluated).
struct StateCollected {
  int64_t step;
  StateUse use;
  ModelState state;
  Generation generation = {};  // generation of the plan that reached it
};
// A phase that a recovery has reached. The trainer notes the time.
struct RecoveryReached {
  enum class Phase : uint8_t {
    kLost,           // central knows of the loss
    kPlanned,        // the next plan is made
    kPrepared,       // its stages have their states
    kFirstGradient,  // a micro-batch has been through all of them and back
    kCaughtUp,       // the lost steps are trained again
  };
  Phase phase;
  int64_t step;                      // barrier from which training goes on
  std::vector<std::string> workers;  // lost workers since the recovery began, as in Recovered
  bool from_replicas = false;        // its state is the workers' own; else central gives it
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

using RunEffect =
    std::variant<SendControl, CloseControl, ProbePort, SetTimer, AllowRelay, ConnectFeed, StopFeed,
                 StartLocalWorker, FeedUntil, FeedEvaluation, FeedDryRun, Persist, StateCollected,
                 RecoveryReached, LogLine, RunEnded>;
using RunEffects = std::vector<RunEffect>;

}  // namespace runnel
