#pragma once

// The rules that hold at every step of a history, whatever happens:
//
//   no sample is lost or used twice in the history that is committed: the weights of every stage at
//   every barrier, every state that is collected and every evaluation are what the journalled plans
//   give in one place without a network
//   a generation has one leader, and is used once
//   barriers and commits only go forward, but for a recovery, and a recovery goes back to a barrier
//   that was reached
//   what stages and streams keep is bounded

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "central/records/journal.h"
#include "central/run/machines/run_effects.h"
#include "tests/sim/cluster/oracle.h"
#include "tests/sim/cluster/world.h"

namespace runnel {

class HistoryRules {
 public:
  // Both outlive it.
  HistoryRules(World* world, Oracle* oracle, const Batching& batching)
      : world_(*world), oracle_(*oracle), batching_(batching) {}

  // What a central journals, before its effects behind it are carried out.
  void Check(const JournalRecord& record);
  // A central sends this.
  void CheckSent(const CentralMessage& message, int64_t life);
  void Check(const StateCollected& collected);
  // All that is kept now.
  void CheckBounds();
  // Another central goes on with the run from this barrier.
  void Resume(int64_t step);

 private:
  void CheckRecord(const PlanDecided& decided);
  void CheckRecord(const BarrierPassed& barrier);
  void CheckRecord(const EvaluationRecorded& evaluation);
  void CheckRecord(const Recovered& recovered);
  template <typename Other>
  void CheckRecord(const Other&) {}

  World& world_;
  Oracle& oracle_;
  const Batching batching_;
  Plan plan_;                                        // the last one that was journalled
  int64_t step_ = 0;                                 // the last barrier
  std::set<int64_t> reached_ = {0};                  // barriers, in the history that counts
  Generation last_generation_;                       // journalled
  std::set<std::pair<int32_t, int64_t>> committed_;  // generation and life of its central
  std::optional<ReplicaId> replicated_;              // the last commit of this life
  int64_t life_ = 0;
};

}  // namespace runnel
