#pragma once

// A plan without the devices that were lost, where nothing was measured to make another one from.

#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/barrier_report.h"
#include "proto/base/training/plan.h"

namespace runnel {

// `plan` over the devices that are not lost, by number. A stage whose device is lost goes to a
// device that has none; where there is none, its layers go to the stage before it, those of the
// first stage to the one behind. What crosses the links that stay, and the caps of the stages that
// stay, stay. Stage 0 is on a local device if there is one. Unavailable: all devices are lost.
absl::StatusOr<Plan> MergeLostStages(const Plan& plan, const std::vector<DeviceFacts>& devices);

}  // namespace runnel
