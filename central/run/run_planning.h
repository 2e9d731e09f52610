#pragma once

// Makes a checked run's planner.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/planning_inputs.h"
#include "central/planning/rules/training_rules.h"
#include "central/planning/run_planner.h"
#include "central/run/run_setup.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// Inputs of the plans of `setup`, from first_step up to stop_step. `changes`: decided before
// first_step. Call after SetTrainingSamples.
absl::StatusOr<PlanningInputs> MakePlanningInputs(const RunSetup& setup, int64_t stop_step,
                                                  int64_t first_step = 0,
                                                  const std::vector<TrainingChange>& changes = {});

// The rules that turn dials in this run, such as that of --gradient-bits RULE:...
// `changes`: decided before first_step. `states`: of a check-point. InvalidArgument: they are not of
// these rules.
absl::StatusOr<TrainingRules> MakeTrainingRules(const RunSetup& setup, int64_t first_step,
                                                const std::vector<TrainingChange>& changes,
                                                const RuleStates& states);

// Of them the one that changes nothing: what gates chose, where the model has any. For a replay, whose
// changes are known.
absl::StatusOr<TrainingRules> MakeCountingRules(const RunSetup& setup, const RuleStates& states);

// A planner with these inputs. Errors as MakePlanningInputs and RunPlanner::Create.
absl::StatusOr<std::unique_ptr<RunPlanner>> MakeRunPlanner(
    const RunSetup& setup, int64_t stop_step, int64_t first_step = 0,
    const std::vector<TrainingChange>& changes = {});

}  // namespace runnel
