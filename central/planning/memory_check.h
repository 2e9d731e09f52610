#pragma once

// Checks that the stages of a plan fit into the workers' memory, whatever the policy knows of
// memory: a stage that does not fit is refused before anything is sent.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "central/planning/measured/measured_cluster.h"
#include "partition/plan_builder.h"
#include "proto/base/plan/plan.h"

namespace runnel {

// Memory of a worker without a stage, and of its stage's start: added to the stage's plan.
constexpr int64_t kWorkerBytes = 64'000'000;

// The part of the limit that a stage may take.
int64_t StageLimitOf(const DeviceMemory& device);

// devices: by device number. InvalidArgument names each stage that does not fit, its memory, its
// worker's limit, and the fix. Other errors as MakePipelineModel and PlacementOf.
absl::Status CheckMemory(const PlanRequest& request, const Plan& plan,
                         const std::vector<DeviceMemory>& devices);

// The error if no plan fits: memory of the whole model on one device, and each device's limit.
absl::Status NoRoomError(const PlanRequest& request, const std::vector<DeviceMemory>& devices);

}  // namespace runnel
