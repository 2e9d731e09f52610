#pragma once

// Bugs that a run of the simulator can have: each stands at a seam (a message, an effect, the
// arithmetic) where the bug of its name would show, so that production code has no switch for it.
// The simulator must find each (planted_bugs_test.cc).

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace runnel {

enum class PlantedBug : uint8_t {
  kNone,
  kCommitBeforeAck,             // a barrier counts as replicated before the neighbour has it
  kStaleGeneration,             // states of an earlier plan's stages count for the present one
  kForgottenOptimizerState,     // momentum is left out of states
  kDoubleApply,                 // after a broken connection a micro-batch is applied twice
  kStageDroppedAfterMeasuring,  // a worker that could not measure has lost its stage
  kAnswersAreCounted,           // two answers of one worker count as answers of two
  kOldEvaluation,               // the figures of an earlier plan's evaluation count
  kUncommittedReplica,          // a recovery goes on from a barrier that was not committed
  kDeadWorkersHeartbeat,        // a restarted worker's messages count as its lost process's
  kFeedFromWrongSequence,       // after a recovery the feed begins one micro-batch late
  kInputsByArrival,             // inputs are drawn by when they are sent, not by their sequence
  kStateOfLaterStep,            // a state that is collected has been trained further
  kGenerationUsedTwice,         // a central that goes on begins with the first generation again
  kGrantLost,                   // the first grant after a broken connection is lost
  kRecoveryToLaterStep,         // a recovery trains on from one step later than its replicas
  kLayersOfEarlierMove,         // a layer moves as it was when it moved before
  kCheckpointOfWrongStep,       // a check-point says that it is of the barrier after its own
  kAccumulatorKept,             // a step leaves its gradients for the next one
  kRelayOfEarlierPlan,          // central relays for its first plan and for no later one
  kRelayLosesFrame,  // a frame that goes by way of central is lost, and nobody hears of it
  kLeavesAtOnce,     // a worker that is told to leave does not wait for its stage to move
  kCommitOvertaken,  // a copy does not say which barrier is committed, and overtakes that news
};

struct PlantedBugRow {
  PlantedBug bug;
  absl::string_view name;
  absl::string_view scenario;  // in which it is looked for
};

inline constexpr std::array kPlantedBugs = {
    PlantedBugRow{PlantedBug::kCommitBeforeAck, "commit_before_ack", "replica_race"},
    PlantedBugRow{PlantedBug::kStaleGeneration, "stale_generation", "slow_states"},
    PlantedBugRow{PlantedBug::kForgottenOptimizerState, "forgotten_optimizer_state", "crashes"},
    PlantedBugRow{PlantedBug::kDoubleApply, "double_apply", "breaks"},
    PlantedBugRow{PlantedBug::kStageDroppedAfterMeasuring, "stage_dropped_after_measuring",
                  "moves"},
    PlantedBugRow{PlantedBug::kAnswersAreCounted, "answers_are_counted", "crashes"},
    PlantedBugRow{PlantedBug::kOldEvaluation, "old_evaluation", "evaluations"},
    PlantedBugRow{PlantedBug::kUncommittedReplica, "uncommitted_replica", "crashes"},
    PlantedBugRow{PlantedBug::kDeadWorkersHeartbeat, "dead_workers_heartbeat", "crashes"},
    PlantedBugRow{PlantedBug::kFeedFromWrongSequence, "feed_from_wrong_sequence", "crashes"},
    PlantedBugRow{PlantedBug::kInputsByArrival, "inputs_by_arrival", "crashes"},
    PlantedBugRow{PlantedBug::kStateOfLaterStep, "state_of_later_step", "central"},
    PlantedBugRow{PlantedBug::kGenerationUsedTwice, "generation_used_twice", "central"},
    PlantedBugRow{PlantedBug::kGrantLost, "grant_lost", "breaks"},
    PlantedBugRow{PlantedBug::kRecoveryToLaterStep, "recovery_to_later_step", "crashes"},
    PlantedBugRow{PlantedBug::kLayersOfEarlierMove, "layers_of_earlier_move", "moves"},
    PlantedBugRow{PlantedBug::kCheckpointOfWrongStep, "checkpoint_of_wrong_step", "central"},
    PlantedBugRow{PlantedBug::kAccumulatorKept, "accumulator_kept", "crashes"},
    PlantedBugRow{PlantedBug::kRelayOfEarlierPlan, "relay_of_earlier_plan", "relays"},
    PlantedBugRow{PlantedBug::kRelayLosesFrame, "relay_loses_frame", "relays"},
    PlantedBugRow{PlantedBug::kLeavesAtOnce, "leaves_at_once", "drains"},
    PlantedBugRow{PlantedBug::kCommitOvertaken, "commit_overtaken", "replica_race"},
};

inline std::optional<PlantedBug> FindPlantedBug(absl::string_view name) {
  for (const PlantedBugRow& row : kPlantedBugs) {
    if (row.name == name) return row.bug;
  }
  return std::nullopt;
}

}  // namespace runnel
