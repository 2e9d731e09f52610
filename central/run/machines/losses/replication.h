#pragma once

// Has the stages keep their states of a barrier among themselves: each copies its own and sends the
// copy to another one (copy_holders.h) while training goes on. When all have answered, the barrier is committed:
// from then on a run that loses workers need go back no further (recovery.h). At most one barrier
// is under way; the barriers that pass meanwhile are left out.
//
// Pure: events in, effects out. Times are by central's clock.

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/records/summary.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/losses/copy_holders.h"
#include "central/run/machines/move.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

struct ReplicationOptions {
  // Barriers from one replica to the next; 0: by what they take; -1: none.
  int64_t every = 0;
  int64_t barrier_steps = 1;              // from one barrier to the next
  std::vector<int64_t> layer_bytes = {};  // of the state, by layer; empty: copies take nothing
};

// The stages' states of a barrier, and who has them.
struct ReplicatedBarrier {
  ReplicaId id;
  int64_t step = 0;
  std::vector<LayersHeld> layers;  // by stage; devices: its own, then the holders' of copies
  int64_t reached_ns = 0;          // when the stages stood there

  // Somebody has each layer.
  bool is_whole() const;
};

class Replication {
 public:
  // A replica is on its way at most one part in so many of the time.
  static constexpr int64_t kTimeShare = 64;

  explicit Replication(const ReplicationOptions& options) : options_(options) {}

  // Whether the stages, which stand at the barrier at `step`, should replicate it. central_step:
  // of the state that central has.
  bool Wants(int64_t step, int64_t central_step, const ActivePlan& active, int64_t now_ns);
  // Barriers lie so far apart from now on.
  void SetBarrierSteps(int64_t steps) { options_.barrier_steps = steps; }
  // Who holds copies in a plan: apart from each other where the stages have the memory for it, else
  // neighbours. Where one has not even that, the plan trains without, and a line says so once.
  std::optional<CopyHolders> HoldersIn(const ActivePlan& active,
                                       const std::vector<DeviceFacts>& devices,
                                       const Roster& roster, RunEffects& effects);
  void Begin(int64_t step, Sequence sequence, const ActivePlan& active, const CopyHolders& holders,
             int64_t now_ns, RunEffects& effects);
  // Answers to other barriers, and those that come twice, count for nothing. `stage` answers.
  void AddReplicated(size_t stage, const Replicated& replicated, const Roster& roster,
                     RunEffects& effects);
  // This device's replicas are gone.
  void Lose(int device);
  // The stages that were replicating are no more.
  void GiveUp() { under_way_.reset(); }
  // Training went back to the barrier at `step`: later ones are void.
  void GoBackTo(int64_t step);

  // The copies are of no use.
  void Forget();

  bool under_way() const { return under_way_.has_value(); }
  // The last barrier that is committed.
  const std::optional<ReplicatedBarrier>& committed() const { return committed_; }
  const ReplicationSummary& summary() const { return summary_; }

 private:
  struct UnderWay {
    ReplicatedBarrier barrier;
    // What a stage has still to say: of its own copy, or of another's that it is to hold.
    struct Awaited {
      int stage = 0;
      int source = 0;
      friend auto operator<=>(const Awaited&, const Awaited&) = default;
    };
    std::set<Awaited> missing;
    CopyHolders holders;
    // Of the stage that took longest, with the way over others.
    int64_t stall_ns = 0;
    int64_t took_ns = 0;
    int64_t bytes = 0;
  };

  struct Short {
    int device = 0;
    int64_t needed_bytes = 0;
  };

  int64_t BytesOf(const StagePlan& stage) const;
  // The first device that has not the memory for what it is to hold.
  std::optional<Short> WhoLacksMemory(const ActivePlan& active,
                                      const std::vector<DeviceFacts>& devices,
                                      const CopyHolders& holders) const;

  ReplicationOptions options_;
  Generation told_;  // of the last plan that a line said has no room
  std::optional<UnderWay> under_way_;
  std::optional<ReplicatedBarrier> committed_;
  bool is_thinned_ = false;  // a device that had replicas of it is lost
  // The last one that was begun.
  int64_t begun_step_ = 0;
  int64_t begun_ns_ = 0;
  int64_t took_ns_ = 0;  // the last one that was committed
  ReplicationSummary summary_;
};

}  // namespace runnel
