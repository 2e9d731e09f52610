#pragma once

// Brings a plan into force: the first plan, every later one and a recovery by the same protocol.
//
//   fetching    each stage of the current plan hands over the layers that move to other devices; in
//               a recovery the holders of replicas do
//   preparing   the stages of the next plan are made aside, beside those that stand at the barrier
//   connecting  all are prepared: the plan is journalled and committed, the new stages take over
//               and dial each other and the feed
//
// Before the commit, Abort undoes everything and the current plan goes on. A first plan and a
// recovery have no current plan to return to; central gives the layers that no device has. A
// generation is never used twice: an aborted move keeps its number, so a late answer to it fits no
// other move. Answers are kept by device (one stage a device), so a repeated answer counts once.
// Pure: events in, effects out.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// Layers at the barrier and the devices that hold their state, the first to be asked in front; no
// device: central has it.
struct LayersHeld {
  LayerRange layers;
  std::vector<int> devices;
};

// A plan that is to hold.
struct MoveOrder {
  PlanDecided decided;  // the plan for the journal; Move sets its generation
  std::string why;      // reason, for people; empty: the first plan, or a recovery
  // The part of the message that is the same for all stages: model, training, backend, first
  // sequence.
  PrepareStage common;
  // The layers that central has to give: all of them for the first plan and for a recovery without
  // replicas, unless stages draw them.
  ModelState state;
  std::optional<Recovered> recovered = {};  // journalled ahead of the plan
  // For a recovery: the barrier's replicas, and their holders.
  std::optional<ReplicaId> replica = {};
  std::vector<LayersHeld> held = {};
};

// The layers of `held` that move to devices which do not have them.
std::vector<LayerRange> LayersLeaving(const LayersHeld& held, const Plan& next);

class Move {
 public:
  // first: the generation of the first plan. link_token: a secret from which the tokens and
  // greetings of data links are derived, different for each generation and stage, so that nobody
  // reaches a stage of another plan, and a stolen token opens no other stage.
  Move(Generation first, std::string link_token)
      : next_generation_(first), link_token_(std::move(link_token)) {}

  // Not while a move is under way. InvalidArgument: the plan does not fit the model. Internal:
  // stage 0 would not be local.
  absl::Status Begin(MoveOrder order, const ActivePlan& from, const Roster& roster,
                     RunEffects& effects);
  void AddLayers(int device, const LayersFetched& fetched, const Roster& roster,
                 RunEffects& effects);
  // The plan that holds from now on, when `device` was the last to be prepared.
  std::optional<ActivePlan> AddPrepared(int device, const StagePrepared& prepared,
                                        const Roster& roster, RunEffects& effects);
  // True: `device` was the last; the stages of the plan that holds are connected.
  bool AddReady(int device, const StageReady& ready);
  // Takes the move back; the current plan goes on. Only while `revocable`.
  void Abort(absl::string_view why, const Roster& roster, RunEffects& effects);
  // A stage of it is lost, before or after the commit: another plan will follow.
  void GiveUp(const Roster& roster, RunEffects& effects);

  bool under_way() const { return state_ != State::kIdle; }
  // Layers are on their way from the stages; from this device's they are still to come.
  bool fetching() const { return state_ == State::kFetching; }
  bool AwaitsLayers(int device) const { return awaited_.count(device) > 0; }
  // Whether the move is under way and not committed.
  bool revocable() const { return state_ == State::kFetching || state_ == State::kPreparing; }
  // Whether the plan that is under way has a stage on this device, or waits for layers from it.
  bool Uses(int device) const;
  // Generation of the plan under way, or of the last one.
  Generation generation() const { return order_.decided.plan.generation; }
  const Plan& plan() const { return order_.decided.plan; }
  // As it is journalled: with the numerics classes that stages which are prepared compute in.
  const PlanDecided& decided() const { return order_.decided; }
  // Why, for people; empty: nothing is known.
  const std::string& why() const { return order_.why; }

 private:
  enum class State : uint8_t { kIdle, kFetching, kPreparing, kConnecting };

  PrepareStage MessageFor(size_t stage, const Roster& roster) const;
  void Fetch(const Roster& roster, RunEffects& effects);
  void Prepare(const Roster& roster, RunEffects& effects);
  void AwaitAllStages();
  // The pairs of the plan that may be relayed through central.
  RelayPlan Relays(const Roster& roster) const;
  // Address and credentials for dialling a stage's data links.
  LinkTarget TargetAt(size_t stage, const Roster& roster) const;

  Generation next_generation_;
  std::string link_token_;
  State state_ = State::kIdle;
  MoveOrder order_;
  std::set<int> awaited_;  // devices that have not answered in this state
};

}  // namespace runnel
