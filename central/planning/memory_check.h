#pragma once

// Whether the stages of a plan fit into what the workers may take. Policies that do not know of
// memory are checked as well: a stage that does not fit is refused before anything is sent.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "central/planning/measured/measured_cluster.h"
#include "partition/plan_builder.h"
#include "proto/base/plan/plan.h"

namespace runnel {

// A worker without a stage, and what its stage takes while it starts: beside the stage's plan.
constexpr int64_t kWorkerBytes = 64'000'000;

// What of the limit a stage may take.
int64_t StageLimitOf(const DeviceMemory& device);

// devices: by device number. InvalidArgument: names each stage that does not fit, with what it
// takes, what its worker may take, and the fix. Others as MakePipelineModel and PlacementOf.
absl::Status CheckMemory(const PlanRequest& request, const Plan& plan,
                         const std::vector<DeviceMemory>& devices);

// No plan at all fits: what the whole model takes on one device, and what each may take.
absl::Status NoRoomError(const PlanRequest& request, const std::vector<DeviceMemory>& devices);

}  // namespace runnel
