#pragma once

// What a latency predictor is for: plans. How much slower a plan from predicted times is than one
// from measured times, both simulated with the measured ones.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "partition/scenario.h"
#include "predictor/judge/cross_validate.h"

namespace runnel {

// One scenario whose hosts are devices that were never profiled, planned from what one row predicts
// of them after its ranges were measured (cold: nothing was reported yet).
struct PredictedPlan {
  std::string scenario;
  std::string row;
  int rotation = 0;        // which device stands for the first host
  double predicted_s = 0;  // a batch, of the plan from predicted times
  double measured_s = 0;   // a batch, of the plan from measured times

  double ratio() const { return predicted_s / measured_s; }
};

// The row's network for a model; nothing: the row is left out there.
using FindNetworkFn = std::function<std::optional<PredictorNetwork>(const PredictorRow& row,
                                                                    const std::string& model)>;

// Policy `runnel` on each scenario, for every row and rotation. A host has the times of one of the
// `unseen` devices, divided by the host's speed, so that hosts differ in more than a factor.
// `known`: all that predictions may know. Scenarios of a model that no unseen device has are left
// out. profiles: the folder of the device profiles that scenarios name. InvalidArgument: nothing is
// left; otherwise as ScenarioModel::Create and PredictorRow::fit.
absl::StatusOr<std::vector<PredictedPlan>> JudgePlans(absl::Span<const Scenario> scenarios,
                                                      absl::Span<const DeviceTask> known,
                                                      absl::Span<const DeviceTask> unseen,
                                                      const FindNetworkFn& find_network,
                                                      const std::string& profiles = "");

// Of the row's ratios. NaN without any.
double MedianRatio(absl::Span<const PredictedPlan> plans, const std::string& row);
double WorstRatio(absl::Span<const PredictedPlan> plans, const std::string& row);

}  // namespace runnel
