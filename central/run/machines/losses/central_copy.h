#pragma once

// Central's copy of the whole model's state, to which a recovery goes back, and when it is worth
// collecting another one.
//
// Pure. Times are by central's clock.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/run/machines/active_plan.h"
#include "proto/base/model/model_state.h"

namespace runnel {

class CentralCopy {
 public:
  // Collecting states only for this takes at most one part in so many of the time; with replication
  // one in the second number, so that both together take less than 3 %.
  static constexpr int64_t kTimeShare = 32;
  static constexpr int64_t kTimeShareBeside = 128;

  // layer_bytes: of the state, by layer; empty: states cost nothing. initial: of all layers at
  // first_step; empty: stages draw it from the seed.
  CentralCopy(std::vector<int64_t> layer_bytes, bool has_replicas, int64_t first_step,
              ModelState initial)
      : layer_bytes_(std::move(layer_bytes)),
        time_share_(has_replicas ? kTimeShareBeside : kTimeShare),
        step_(first_step),
        state_(std::move(initial)) {}

  // Whether a state should be collected for recovery at a barrier of the plan `active`. On slow
  // links it displaces activations and gradients, so it may take at most one part in kTimeShare of
  // the time, estimated by the last collection or by the known paths to `devices`. A state that is
  // collected for a check-point serves as well.
  bool WantsState(const ActivePlan& active, const std::vector<DeviceFacts>& devices,
                  int64_t now_ns);
  void BeginCollecting(int64_t now_ns) { began_ns_ = now_ns; }
  // Keeps a whole state.
  void Keep(int64_t step, ModelState state, int64_t now_ns);

  // The barrier of the state.
  int64_t step() const { return step_; }
  // When that barrier was reached; 0: before the run.
  int64_t reached_ns() const { return reached_ns_; }
  // Without layers: the one drawn from the seed.
  const ModelState& state() const { return state_; }

 private:
  double CollectSeconds(const ActivePlan& active, const std::vector<DeviceFacts>& devices) const;

  std::vector<int64_t> layer_bytes_;
  int64_t time_share_;
  int64_t step_;
  ModelState state_;
  std::optional<int64_t> kept_ns_;  // when it was whole, or the first barrier reached
  int64_t began_ns_ = 0;            // the collection that is under way
  int64_t reached_ns_ = 0;          // its barrier
  int64_t took_ns_ = 0;             // the last one
};

}  // namespace runnel
