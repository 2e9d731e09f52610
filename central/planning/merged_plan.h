#pragma once

// A recorded plan on the devices that are there, where nothing was measured to make another one
// from.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/barrier_report.h"
#include "proto/base/plan/plan.h"

namespace runnel {

// `plan` over the devices that are not lost, by number. A stage whose device is lost goes to a
// device that has none; where there is none, its layers go to the stage before it, those of the
// first stage to the one behind. What crosses the links that stay, and the caps of the stages that
// stay, stay. Stage 0 is on a local device if there is one. Unavailable: all devices are lost.
absl::StatusOr<Plan> MergeLostStages(const Plan& plan, const std::vector<DeviceFacts>& devices);

// `plan`, whose devices have these names by number, on the devices of another run: each stage goes
// to the device of its name, else to one that no name wants; stage 0 to a local one. A stage for
// which there is no device is merged away as a lost one. Errors as MergeLostStages.
absl::StatusOr<Plan> RenumberByName(const Plan& plan, const std::vector<std::string>& names,
                                    const std::vector<DeviceFacts>& devices);

}  // namespace runnel
