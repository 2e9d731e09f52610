#include "central/reports/predicted_plans.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/reports/profiled_hosts.h"
#include "central/reports/simulate_table.h"
#include "predictor/run/predictor_row.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// A device that stands for hosts: its times as measured, and as each row predicts them.
struct StandIn {
  const DeviceTask* task = nullptr;
  DeviceTimes measured;
  std::vector<DeviceTimes> predicted;  // by row; empty: the row is left out
};

absl::StatusOr<StandIn> MakeStandIn(const DeviceTask& task, absl::Span<const DeviceTask> known,
                                    absl::Span<const KnownDevice> known_devices,
                                    const FindNetworkFn& find_network) {
  StandIn made;
  made.task = &task;
  RUNNEL_ASSIGN_OR_RETURN(const KnownDevice device,
                          KnownDevice::Create(*task.work, task.batch, task.BothPasses()));
  made.measured = MeasuredTimesOf(device);
  PredictorKnowledge knowledge =
      KnowledgeFor(task, known, known_devices, [](const DeviceTask&) { return true; });
  for (const PredictorRow& row : BuiltinPredictors()) {
    knowledge.network.reset();
    if (UsesNetwork(row, knowledge)) knowledge.network = find_network(row, task.model);
    made.predicted.emplace_back();
    if (!CheckKnowledge(row, knowledge).ok()) continue;
    RUNNEL_ASSIGN_OR_RETURN(made.predicted.back(), PredictedTimesOf(row, knowledge, device));
  }
  return made;
}

// One scenario with one assignment of devices to hosts.
absl::Status JudgeRotation(ScenarioModel& model, const std::vector<StandIn>& devices, int rotation,
                           std::vector<PredictedPlan>& plans) {
  const Scenario& scenario = model.scenario();
  const auto samples = static_cast<double>(MicroBatchSize(scenario.training));
  std::vector<const StandIn*> hosts;
  std::vector<double> factors;
  for (size_t i = 0; i < scenario.hosts.size(); ++i) {
    hosts.push_back(&devices[(i + static_cast<size_t>(rotation)) % devices.size()]);
    factors.push_back(samples / static_cast<double>(hosts.back()->task->batch) /
                      scenario.hosts[i].speed);
  }
  std::vector<DeviceTimes> measured;
  for (size_t i = 0; i < hosts.size(); ++i)
    measured.push_back(hosts[i]->measured.Scaled(factors[i]));
  const SimulatedMethod method = MethodsFor({"runnel"}).front();
  model.SetTimes(measured, measured);
  RUNNEL_ASSIGN_OR_RETURN(const SimulatedCell best, model.Run(method, 0));
  for (size_t r = 0; r < BuiltinPredictors().size(); ++r) {
    std::vector<DeviceTimes> predicted;
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (!hosts[i]->predicted[r].empty())
        predicted.push_back(hosts[i]->predicted[r].Scaled(factors[i]));
    }
    if (predicted.size() < hosts.size()) continue;
    model.SetTimes(predicted, measured);
    RUNNEL_ASSIGN_OR_RETURN(const SimulatedCell cell, model.Run(method, 0));
    plans.push_back({scenario.name, std::string(BuiltinPredictors()[r].name), rotation,
                     cell.seconds_per_batch, best.seconds_per_batch});
  }
  return absl::OkStatus();
}

std::vector<double> SortedRatios(absl::Span<const PredictedPlan> plans, const std::string& row) {
  std::vector<double> ratios;
  for (const PredictedPlan& plan : plans) {
    if (plan.row == row) ratios.push_back(plan.ratio());
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios;
}

}  // namespace

absl::StatusOr<std::vector<PredictedPlan>> JudgePlans(absl::Span<const Scenario> scenarios,
                                                      absl::Span<const DeviceTask> known,
                                                      absl::Span<const DeviceTask> unseen,
                                                      const FindNetworkFn& find_network,
                                                      const std::string& profiles) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<KnownDevice> known_devices, DevicesOf(known));
  std::vector<PredictedPlan> plans;
  for (const Scenario& scenario : scenarios) {
    std::vector<StandIn> devices;
    for (const DeviceTask& task : unseen) {
      if (task.model != scenario.training.model) continue;
      RUNNEL_ASSIGN_OR_RETURN(StandIn made, MakeStandIn(task, known, known_devices, find_network));
      devices.push_back(std::move(made));
    }
    SimulateOptions options;
    options.codecs = DefaultCodecPairs();
    options.profiles.folder = profiles;
    RUNNEL_ASSIGN_OR_RETURN(ScenarioModel model, ScenarioModel::Create(scenario, options));
    for (size_t rotation = 0; rotation < devices.size(); ++rotation) {
      RUNNEL_RETURN_IF_ERROR(JudgeRotation(model, devices, static_cast<int>(rotation), plans));
    }
  }
  if (plans.empty())
    return absl::InvalidArgumentError("no unseen device was profiled with a scenario's model");
  return plans;
}

double MedianRatio(absl::Span<const PredictedPlan> plans, const std::string& row) {
  const std::vector<double> ratios = SortedRatios(plans, row);
  if (ratios.empty()) return std::numeric_limits<double>::quiet_NaN();
  const size_t middle = ratios.size() / 2;
  return ratios.size() % 2 == 1 ? ratios[middle] : (ratios[middle - 1] + ratios[middle]) / 2;
}

double WorstRatio(absl::Span<const PredictedPlan> plans, const std::string& row) {
  const std::vector<double> ratios = SortedRatios(plans, row);
  return ratios.empty() ? std::numeric_limits<double>::quiet_NaN() : ratios.back();
}

}  // namespace runnel
