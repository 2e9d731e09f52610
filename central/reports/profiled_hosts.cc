#include "central/reports/profiled_hosts.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/predicted_cost.h"
#include "partition/zoo/zoo.h"
#include "predictor/judge/cross_validate.h"
#include "predictor/profiles/profile_folder.h"
#include "predictor/profiles/sub_models.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

template <typename SecondsFn>
DeviceTimes AllTimes(int layers, const SecondsFn& seconds_of) {
  std::vector<double> seconds;
  for (const LayerRange& range : AllRanges(layers)) seconds.push_back(seconds_of(range));
  return DeviceTimes::ByRange(layers, std::move(seconds));
}

// What the profiles say of one model.
absl::StatusOr<std::vector<DeviceTask>> TasksOfModel(std::vector<DeviceProfile> profiles,
                                                     const std::string& model) {
  for (DeviceProfile& profile : profiles)
    std::erase_if(profile.sub_models, [&](const SubModelTime& row) { return row.model != model; });
  return TasksOf(profiles, kMaxProfiledMacs, MakeModel);
}

absl::StatusOr<DeviceTask> ReadTask(const ScenarioProfile& profile, const std::string& model,
                                    const ProfileSource& source) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("scenario: profile ", profile.name,
                                                   ": device_profile ", profile.device_profile,
                                                   ": ", what));
  };
  namespace fs = std::filesystem;
  const fs::path path = fs::path(source.folder) / profile.device_profile;
  if (path.is_relative() && source.folder.empty())
    return wrong("--predictor-profiles must name the folder that it is in");
  const absl::StatusOr<std::string> text = ReadText(path.string(), kMaxProfileBytes);
  if (!text.ok()) return wrong(text.status().message());
  absl::StatusOr<DeviceProfile> parsed = ParseProfile(*text);
  if (!parsed.ok()) return wrong(parsed.status().message());
  absl::StatusOr<std::vector<DeviceTask>> tasks = TasksOfModel({*std::move(parsed)}, model);
  if (!tasks.ok()) return wrong(tasks.status().message());
  if (tasks->empty()) return wrong(absl::StrCat("has no times of model ", model));
  return *std::max_element(
      tasks->begin(), tasks->end(),
      [](const DeviceTask& a, const DeviceTask& b) { return a.batch < b.batch; });
}

absl::StatusOr<KnownDevice> DeviceOf(const DeviceTask& task) {
  return KnownDevice::Create(*task.work, task.batch, task.BothPasses(), task.central);
}

// Of `task`, to what the scenario trains with.
double ScaleTo(const Scenario& scenario, int64_t batch) {
  return static_cast<double>(MicroBatchSize(scenario.training)) / static_cast<double>(batch);
}

// Devices that a predictor may know.
struct Known {
  std::vector<DeviceTask> tasks;
  std::vector<KnownDevice> devices;
};

absl::StatusOr<Known> ReadKnown(const std::string& model, const ProfileSource& source) {
  Known known;
  RUNNEL_ASSIGN_OR_RETURN(std::vector<DeviceProfile> profiles, LoadProfiles(source.folder));
  RUNNEL_ASSIGN_OR_RETURN(known.tasks, TasksOfModel(std::move(profiles), model));
  RUNNEL_ASSIGN_OR_RETURN(known.devices, DevicesOf(known.tasks));
  return known;
}

absl::StatusOr<DeviceTimes> PredictHost(const PredictorRow& row, const DeviceTask& task,
                                        const Known& known, const ProfileSource& source) {
  for (const DeviceTask& other : known.tasks) {
    if (other.configuration != task.configuration) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("scenario: device profile ", task.configuration, " is one of ", source.folder,
                     ", from which predictor ", row.name, " learned: take one that it never saw"));
  }
  PredictorKnowledge knowledge =
      KnowledgeFor(task, known.tasks, known.devices, [](const DeviceTask&) { return true; });
  if (UsesNetwork(row, knowledge)) {
    RUNNEL_ASSIGN_OR_RETURN(knowledge.network, LoadNetwork(row, task.model, source.folder));
  }
  RUNNEL_RETURN_IF_ERROR(CheckKnowledge(row, knowledge));
  RUNNEL_ASSIGN_OR_RETURN(const KnownDevice device, DeviceOf(task));
  return PredictedTimesOf(row, knowledge, device);
}

}  // namespace

const ScenarioProfile& ProfileOf(const Scenario& scenario, const ScenarioHost& host) {
  return *std::find_if(scenario.profiles.begin(), scenario.profiles.end(),
                       [&](const ScenarioProfile& one) { return one.name == host.profile; });
}

int64_t MicroBatchSize(const ScenarioTraining& training) {
  return (training.batch_size + training.micro_batches - 1) / training.micro_batches;
}

DeviceTimes MeasuredTimesOf(const KnownDevice& device) {
  return AllTimes(device.work().layers(),
                  [&](const LayerRange& range) { return device.Seconds(range); });
}

absl::StatusOr<DeviceTimes> PredictedTimesOf(const PredictorRow& row,
                                             const PredictorKnowledge& knowledge,
                                             const KnownDevice& device) {
  std::vector<Observation> measured;
  for (const LayerRange& range : row.ranges(knowledge))
    measured.push_back({range, device.Seconds(range)});
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const RangePredictor> predictor,
                          row.fit(knowledge, measured, {}));
  return AllTimes(device.work().layers(),
                  [&](const LayerRange& range) { return predictor->Seconds(range); });
}

absl::StatusOr<std::vector<DeviceTimes>> MeasuredHosts(const Scenario& scenario,
                                                       const ModelSpec& model,
                                                       const ProfileSource& source) {
  std::vector<DeviceTimes> times;
  for (const ScenarioHost& host : scenario.hosts) {
    const ScenarioProfile& profile = ProfileOf(scenario, host);
    if (profile.device_profile.empty()) {
      std::vector<double> seconds;
      for (const double ms : profile.layer_ms)
        seconds.push_back(ms * 1e-3 * ScaleTo(scenario, profile.batch_size));
      times.push_back(DeviceTimes::ByLayer(std::move(seconds)));
      continue;
    }
    RUNNEL_ASSIGN_OR_RETURN(const DeviceTask task, ReadTask(profile, model.name, source));
    RUNNEL_ASSIGN_OR_RETURN(const KnownDevice device, DeviceOf(task));
    times.push_back(MeasuredTimesOf(device).Scaled(ScaleTo(scenario, task.batch)));
  }
  return times;
}

bool HaveDeviceProfiles(const Scenario& scenario) {
  return std::all_of(scenario.hosts.begin(), scenario.hosts.end(), [&](const ScenarioHost& host) {
    return !ProfileOf(scenario, host).device_profile.empty();
  });
}

absl::StatusOr<std::vector<DeviceTimes>> PredictedHosts(const Scenario& scenario,
                                                        const ModelSpec& model,
                                                        const ProfileSource& source) {
  if (!HaveDeviceProfiles(scenario)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scenario ", scenario.name,
        ": its hosts have no device_profile, from which something could be predicted"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const PredictorRow* row, FindPredictor(source.predictor));
  RUNNEL_ASSIGN_OR_RETURN(const Known known, ReadKnown(model.name, source));
  std::vector<DeviceTimes> times;
  for (const ScenarioHost& host : scenario.hosts) {
    const ScenarioProfile& profile = ProfileOf(scenario, host);
    RUNNEL_ASSIGN_OR_RETURN(const DeviceTask task, ReadTask(profile, model.name, source));
    RUNNEL_ASSIGN_OR_RETURN(const DeviceTimes predicted, PredictHost(*row, task, known, source));
    times.push_back(predicted.Scaled(ScaleTo(scenario, task.batch)));
  }
  return times;
}

}  // namespace runnel
