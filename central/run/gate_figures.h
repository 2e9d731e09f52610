#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/records/gate_summary.h"
#include "central/run/run_setup.h"
#include "proto/base/training/precision/precision_cost.h"

namespace runnel {

// What gates of the model chose, from a state of rule GateCounts. InvalidArgument as below.
absl::StatusOr<std::vector<GateSummary::Gate>> GateChoicesOf(const ModelSpec& model,
                                                             absl::string_view state);

// What the gates' blocks cost beside each target so far. InvalidArgument: it is no such state.
absl::StatusOr<std::vector<GateSummary::Target>> GateTargetsOf(const TrainingSettings& training,
                                                               absl::string_view state);

// Effective multiply-adds of the run so far, as the kernels counted them; 0: the states have none.
double GatesEffectiveMacs(const RuleStates& states);

// For the summary, from a state of rule GateCounts. cost: of a run of this setup. InvalidArgument:
// it is no such state, or not of this model.
absl::StatusOr<GateSummary> GateSummaryOf(const RunSetup& setup, const PrecisionCost& cost,
                                          absl::string_view state);

}  // namespace runnel
