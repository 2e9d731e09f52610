#include "central/planning/memory_check.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/pipeline_model.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kFix[] =
    "take a smaller --batch-size, more workers, --policy runnel (which cuts by memory), or start "
    "the worker with a larger ";

std::string FixOf(const std::vector<DeviceMemory>& limiting) {
  bool host = false, device = false;
  for (const DeviceMemory& one : limiting) (one.memory_of.empty() ? host : device) = true;
  return absl::StrCat(kFix, host ? "--memory-mb" : "", host && device ? " or " : "",
                      device ? "--device-memory-mb (or on its --backend cpu)" : "");
}

std::string Megabytes(int64_t bytes) {
  constexpr int64_t kMegabyte = 1'000'000;
  return absl::StrCat((bytes + kMegabyte - 1) / kMegabyte, " MB");
}

// The program is in the worker's own memory alone.
int64_t ProgramBytes(const DeviceMemory& device) {
  return device.memory_of.empty() ? kWorkerBytes : 0;
}

std::string LimitText(const DeviceMemory& device) {
  return absl::StrCat(Megabytes(device.may_take_bytes), device.memory_of.empty() ? "" : " of ",
                      device.memory_of);
}

}  // namespace

int64_t StageLimitOf(const DeviceMemory& device) {
  return device.may_take_bytes - ProgramBytes(device);
}

absl::Status CheckMemory(const PlanRequest& request, const Plan& plan,
                         const std::vector<DeviceMemory>& devices) {
  if (devices.empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
  RUNNEL_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(request, model, plan));
  const size_t stages = plan.stages.size();
  std::vector<std::string> reasons;
  std::vector<DeviceMemory> limiting;
  for (const auto [i, number] : plan.seats()) {
    const StagePlan& stage = plan.stages[i];
    const DeviceMemory& device = devices[static_cast<size_t>(number)];
    if (device.may_take_bytes == 0) continue;
    const StageEnds ends = {stage.first_layer, stage.last_layer,
                            i > 0 ? placement.codecs[i - 1] : -1,
                            i + 1 < stages ? placement.codecs[i] : -1};
    const int64_t takes =
        StageMemoryBytes(model, HoldOf(model, ends), {stage.cap, stage.deferred_weight_gradients},
                         static_cast<int64_t>(stages - i));
    if (takes <= StageLimitOf(device)) continue;
    limiting.push_back(device);
    reasons.push_back(absl::StrCat(
        "worker ", device.name, ": layers ", stage.first_layer, " to ", stage.last_layer, " take ",
        Megabytes(takes + ProgramBytes(device)), ", it may take ", LimitText(device)));
  }
  if (reasons.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(absl::StrJoin(reasons, "; "), ": ", FixOf(limiting)));
}

absl::Status NoRoomError(const PlanRequest& request, const std::vector<DeviceMemory>& devices) {
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
  const int last = request.model->layer_count() - 1;
  const int64_t whole = StageMemoryBytes(model, HoldOf(model, {0, last}), {1, 0}, 1);
  std::vector<std::string> limits;
  std::vector<DeviceMemory> limiting;
  for (const DeviceId id : request.devices) {
    const DeviceMemory& device = devices[static_cast<size_t>(id.value())];
    if (device.may_take_bytes <= 0) continue;
    limiting.push_back(device);
    limits.push_back(absl::StrCat(device.name, " ", LimitText(device)));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no plan fits the workers' memory: the whole model takes ", Megabytes(whole + kWorkerBytes),
      " on one, they may take ", absl::StrJoin(limits, ", "), ": ", FixOf(limiting)));
}

}  // namespace runnel
