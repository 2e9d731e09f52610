#pragma once

// Whether another plan is worth the change (AccEPT 3.5). At each barrier the policy plans anew from
// corrected times (device_corrections.h). The new plan is proposed if
//   (period now - period then) * micro-batches left > seconds of moving
// and the period falls by a minimal share, at several barriers in a row: a short load on a device
// moves nothing.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/device_corrections.h"
#include "central/planning/plan_source.h"
#include "central/planning/planner.h"
#include "proto/base/training/link_rate.h"

namespace runnel {

struct ReplannerOptions {
  bool layers_move = true;                     // false: only codecs may change
  bool codecs_change = false;                  // codecs follow the rates of links
  std::vector<int64_t> layer_state_bytes;      // parameters, momentum, statistics, by layer
  LinkRate given_rate = LinkRate::Mbps(1000);  // of links that no stage has measured
  int64_t micro_batches_a_step = 1;
  int64_t stop_step = 0;
  double fixed_move_seconds = 1;   // of a move without its bytes
  double min_gain = 0.1;           // share of the period that a new plan must save
  int confirmations = 2;           // barriers in a row that must want a change
  double max_measure_share = 0.1;  // of the time left, that measuring a device again may take
};

// Deterministic: the same reports give the same proposals. One thread.
class Replanner {
 public:
  // `plans` is borrowed.
  Replanner(const PlanSource* plans, ReplannerOptions options, const CorrectionOptions& corrections)
      : plans_(plans), options_(std::move(options)), corrections_(corrections) {}

  // Devices to measure again before ProposeChange is asked at the same barrier. The rates and
  // shares of `cluster` count, its times do not.
  std::vector<int> DevicesToMeasure(const BarrierReport& report, const MeasuredCluster& cluster);
  // None where nothing was profiled, nothing new is known, or the plan that holds is good enough.
  std::optional<ChangePlan> ProposeChange(const BarrierReport& report,
                                          const MeasuredCluster& cluster);

  const DeviceCorrections& corrections() const { return corrections_; }

 private:
  // A plan, and seconds that it takes for a micro-batch.
  struct TimedPlan {
    Plan plan;
    double period_seconds = 0;
  };

  absl::StatusOr<TimedPlan> Time(absl::StatusOr<Plan> plan, const MeasuredCluster& cluster) const;
  absl::StatusOr<TimedPlan> FindBetterPlan(const BarrierReport& report, const TimedPlan& now,
                                           const MeasuredCluster& cluster) const;
  bool LosesLess(const TimedPlan& now, const TimedPlan& next) const;
  int64_t MicroBatchesLeft(const BarrierReport& report) const;
  double MoveSeconds(const BarrierReport& report, const Plan& next) const;

  const PlanSource* plans_;
  ReplannerOptions options_;
  DeviceCorrections corrections_;
  Generation generation_;       // of the last report's plan
  int barriers_that_want_ = 0;  // in a row
};

}  // namespace runnel
