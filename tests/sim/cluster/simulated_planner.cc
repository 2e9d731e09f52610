#include "tests/sim/cluster/simulated_planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<Plan> SimulatedPlanner::Cut(const std::vector<DeviceFacts>& devices, bool evenly) {
  std::vector<int> usable;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].is_lost) usable.push_back(static_cast<int>(i));
  }
  const auto local = std::find_if(usable.begin(), usable.end(), [&](int device) {
    return devices[static_cast<size_t>(device)].is_local;
  });
  if (local == usable.end()) return absl::UnavailableError("no local device is left");
  std::swap(*local, usable.front());
  if (usable.size() < static_cast<size_t>(world_.scenario.needs))
    return absl::ResourceExhaustedError("no plan fits the workers' memory");
  const int layers = world_.scenario.layers;
  const int stages = std::min<int>(layers, static_cast<int>(usable.size()));
  // Where each stage begins.
  std::vector<int> begins(static_cast<size_t>(stages));
  for (int i = 0; i < stages; ++i) begins[static_cast<size_t>(i)] = i * layers / stages;
  if (!evenly) {
    std::vector<int> all(static_cast<size_t>(layers - 1));
    std::iota(all.begin(), all.end(), 1);
    for (size_t i = all.size(); i > 1; --i)
      std::swap(all[i - 1], all[world_.Below(static_cast<uint32_t>(i), kPlanDraws)]);
    std::copy(all.begin(), all.begin() + stages - 1, begins.begin() + 1);
    std::sort(begins.begin(), begins.end());
    for (size_t i = usable.size(); i > 2; --i)
      std::swap(usable[i - 1], usable[1 + world_.Below(static_cast<uint32_t>(i - 1), kPlanDraws)]);
  }
  Plan plan;
  plan.schedule = world_.scenario.sync ? "sync_1f1b" : "async_1f1b";
  plan.drains_each_step = world_.scenario.sync;
  for (int i = 0; i < stages; ++i) {
    const int end = i + 1 < stages ? begins[static_cast<size_t>(i) + 1] : layers;
    plan.stages.push_back({{Seat{DeviceId(usable[static_cast<size_t>(i)])}},
                           begins[static_cast<size_t>(i)],
                           end - 1,
                           stages - i + world_.scenario.extra_cap});
    if (i > 0) plan.links.emplace_back();
  }
  return plan;
}

BarrierDecision SimulatedPlanner::AtBarrier(const BarrierReport& report) {
  const Scenario& scenario = world_.scenario;
  if (measured_step_ != report.step && world_.Uniform(kPlanDraws) < scenario.measures) {
    measured_step_ = report.step;
    const auto stage = world_.Below(static_cast<uint32_t>(report.plan.stages.size()), kPlanDraws);
    return MeasureDevices{{report.plan.stages[stage].sole_device()}};
  }
  const auto usable = std::count_if(report.devices.begin(), report.devices.end(),
                                    [](const DeviceFacts& device) { return !device.is_lost; });
  const bool has_idle = usable > static_cast<int64_t>(report.plan.stages.size()) &&
                        static_cast<int>(report.plan.stages.size()) < scenario.layers;
  if (!has_idle && world_.Uniform(kPlanDraws) >= scenario.moves) return KeepPlan{};
  absl::StatusOr<Plan> plan = Cut(report.devices, /*evenly=*/false);
  if (!plan.ok()) return KeepPlan{};
  return ChangePlan{*std::move(plan), absl::StrCat("step ", report.step, ": another plan")};
}

}  // namespace runnel
