#include "central/planning/merged_plan.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

void GiveToIdleDevices(const std::vector<DeviceFacts>& devices, Plan& plan) {
  for (StagePlan& stage : plan.stages) {
    for (size_t i = 0; i < devices.size() && OfSoleDevice(stage, devices).is_lost; ++i) {
      const auto device = static_cast<int>(i);
      if (!devices[i].is_lost && !plan.Uses(device)) stage.GiveTo(device);
    }
  }
}

// The link that goes is the one between the two stages that become one.
void MergeStage(size_t lost, Plan& plan) {
  const auto at = static_cast<std::ptrdiff_t>(lost);
  if (plan.stages[lost].recompute) plan.stages[lost > 0 ? lost - 1 : 1].recompute = true;
  if (lost > 0) {
    plan.stages[lost - 1].last_layer = plan.stages[lost].last_layer;
    plan.links.erase(plan.links.begin() + at - 1);
  } else {
    plan.stages[1].first_layer = 0;
    plan.links.erase(plan.links.begin());
  }
  plan.stages.erase(plan.stages.begin() + at);
}

void PutALocalDeviceFirst(const std::vector<DeviceFacts>& devices, Plan& plan) {
  const auto local =
      std::find_if(plan.stages.begin(), plan.stages.end(),
                   [&](const StagePlan& stage) { return OfSoleDevice(stage, devices).is_local; });
  if (local != plan.stages.end()) std::swap(plan.stages.front().seats, local->seats);
}

}  // namespace

absl::StatusOr<Plan> MergeLostStages(const Plan& plan, const std::vector<DeviceFacts>& devices) {
  Plan merged = plan;
  GiveToIdleDevices(devices, merged);
  for (size_t i = merged.stages.size(); i-- > 0;) {
    if (!OfSoleDevice(merged.stages[i], devices).is_lost) continue;
    if (merged.stages.size() == 1) return absl::UnavailableError("none is left");
    MergeStage(i, merged);
  }
  PutALocalDeviceFirst(devices, merged);
  return merged;
}

absl::StatusOr<Plan> RenumberByName(const Plan& plan, const std::vector<std::string>& names,
                                    const std::vector<DeviceFacts>& devices) {
  // Behind those that are there: one that is lost, for the stages that find none.
  std::vector<DeviceFacts> all = devices;
  all.push_back({.name = "", .is_lost = true});
  Plan renumbered = plan;
  for (StagePlan& stage : renumbered.stages) {
    const std::string& name = OfSoleDevice(stage, names);
    const auto found = std::find_if(devices.begin(), devices.end(),
                                    [&](const DeviceFacts& device) { return device.name == name; });
    stage.GiveTo(static_cast<int>(found - devices.begin()));
  }
  return MergeLostStages(renumbered, all);
}

}  // namespace runnel
