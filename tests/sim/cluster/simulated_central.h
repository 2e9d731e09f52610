#pragma once

// A central process of a simulation: the production Coordinator and Feeder over a virtual loop,
// links and a disk. What Trainer does with effects in real time, this does in virtual time; here
// stand the planted bugs that are of central or of what it hears.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/data/dataset.h"
#include "central/run/checkpoints/checkpoint_failures.h"
#include "central/run/feed/feeder.h"
#include "central/run/machines/coordinator.h"
#include "proto/transport/relay/relay_transport.h"
#include "tests/sim/cluster/history_rules.h"
#include "tests/sim/cluster/simulated_planner.h"
#include "tests/sim/cluster/simulated_relay.h"
#include "tests/sim/cluster/world.h"
#include "tests/support/in_process/virtual_loop.h"

namespace runnel {

inline constexpr char kCentralNode[] = "central";
inline constexpr char kCentralAddress[] = "10.0.0.1:7000";

// What a central leaves behind on its disk.
struct SimulatedDisk {
  struct Checkpoint {
    int64_t step = 0;
    Generation generation;  // of the plan
    ModelState state;
  };
  std::vector<Checkpoint> checkpoints;  // those that can be read, the newest last

  void Keep(Checkpoint checkpoint) {
    // Where a central went on from an older one, later ones are of a history that counts no more.
    std::erase_if(checkpoints, [&](const Checkpoint& one) { return one.step >= checkpoint.step; });
    checkpoints.push_back(std::move(checkpoint));
    if (checkpoints.size() > kMostKept) checkpoints.erase(checkpoints.begin());
  }
  static constexpr size_t kMostKept = 3;

  Generation last_generation;  // of the journal's plans
  bool full = false;
  int64_t life = 0;  // the last central's
};

class SimulatedCentral final : public CentralControlObserver {
 public:
  // All are borrowed and outlive it.
  struct Parts {
    World* world = nullptr;
    HistoryRules* rules = nullptr;
    SimulatedDisk* disk = nullptr;
    const DatasetSplits* data = nullptr;
    // Of its host.
    Transport* transport = nullptr;
    ControlTransport* control = nullptr;
    std::function<void(const std::string& name)> start_local;
    std::function<bool(const std::string& name)> runs;  // a local worker
  };
  // Goes on from the disk's check-point, if there is one.
  SimulatedCentral(const Parts& parts, const TrainingSettings& training);
  ~SimulatedCentral() override;

  // The run is over, and its files are written.
  bool finished() const { return ended_.has_value() && unwritten_ == 0; }
  const absl::Status& result() const { return *ended_; }
  void SetFrozen(bool frozen);

  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override;
  bool OnBroken(ConnectionId id, const absl::Status& status) override;
  void OnResumed(ConnectionId id) override;
  void OnGone(ConnectionId id, const absl::Status& status) override;

 private:
  CoordinatorOptions MakeOptions(const TrainingSettings& training);
  void Receive(ConnectionId id, WorkerMessage message);
  void Tick();
  void WriteCheckpoint(const StateCollected& collected);
  void Written(SimulatedDisk::Checkpoint checkpoint, bool is_last);
  // What planted bugs make of a message; false: it is lost.
  bool Distort(ConnectionId& id, WorkerMessage& message);
  bool Distort(SendControl& effect);

  template <typename Event>
  void Tell(Event event) {
    event(*coordinator_);
    for (RunEffect& effect : coordinator_->TakeEffects()) {
      std::visit([this](auto& one) { CarryOut(std::move(one)); }, effect);
    }
  }
  void CarryOut(SendControl effect);
  void CarryOut(CloseControl effect) { server_->Close(effect.connection); }
  void CarryOut(ProbePort effect);
  void CarryOut(SetTimer effect);
  void CarryOut(AllowRelay effect) { relay_->Allow(std::move(effect.plan)); }
  void CarryOut(ConnectFeed effect);
  void CarryOut(StopFeed) { feeder_.reset(); }
  void CarryOut(StartLocalWorker effect);
  void CarryOut(FeedUntil effect) { feeder_->FeedUntil(effect.limit); }
  void CarryOut(FeedEvaluation effect) {
    feeder_->FeedEvaluation(effect.first, effect.micro_batches);
  }
  void CarryOut(FeedDryRun effect) {
    feeder_->FeedDryRun(effect.first, effect.training_first, effect.micro_batches);
  }
  void CarryOut(Persist effect);
  void CarryOut(StateCollected effect);
  void CarryOut(RecoveryReached effect);
  void CarryOut(LogLine effect);
  void CarryOut(RunEnded effect);

  const Parts parts_;
  World& world_;
  const int64_t life_;
  VirtualLoop loop_;
  BufferPool pool_;
  SimulatedPlanner planner_;
  std::optional<Coordinator> coordinator_;
  std::unique_ptr<CentralControl> server_;
  std::unique_ptr<SimulatedRelay> relay_;
  RelayTransport routes_;  // of the feed
  std::unique_ptr<Feeder> feeder_;
  CheckpointFailures failures_;
  std::vector<std::string> awaited_;  // local workers that were started
  int64_t unwritten_ = 0;
  std::optional<absl::Status> ended_;
  // For planted bugs.
  std::map<std::string, ConnectionId> streams_;  // the first stream of each name
  std::map<ConnectionId, std::string> names_;
  std::optional<ReplicaId> begun_replica_;
  std::set<ConnectionId> marked_;
  std::optional<EvaluationDone> first_evaluation_;
  std::map<int, LayerState> moved_;
  int64_t plans_ = 0;
};

}  // namespace runnel
