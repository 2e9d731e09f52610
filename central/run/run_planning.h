#pragma once

// From a checked run to its planner.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/planning_inputs.h"
#include "central/planning/run_planner.h"
#include "central/planning/training_rule.h"
#include "central/run/run_setup.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// What the plans of `setup` depend on, up to stop_step. After SetTrainingSamples.
absl::StatusOr<PlanningInputs> MakePlanningInputs(const RunSetup& setup, int64_t stop_step);

// The rule of --gradient-bits plateau:...; null without. `changes`: decided before first_step.
absl::StatusOr<std::unique_ptr<TrainingRule>> MakeTrainingRule(
    const RunSetup& setup, int64_t first_step, const std::vector<TrainingChange>& changes);

// A planner with these inputs. Errors as MakePlanningInputs and RunPlanner::Create.
absl::StatusOr<std::unique_ptr<RunPlanner>> MakeRunPlanner(const RunSetup& setup,
                                                           int64_t stop_step);

}  // namespace runnel
