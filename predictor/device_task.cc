#include "predictor/device_task.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/sub_models.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Ranks of the representatives from the largest on, each next one far from those before.
constexpr size_t kProbeOrder[kRepresentatives] = {9, 4, 0, 7, 2, 8, 5, 1, 6, 3};

absl::Status InProfile(const DeviceProfile& profile, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("profile ", profile.name, ": ", what));
}

void FillOrder(uint64_t seed, DeviceTask& task) {
  std::set<size_t> taken;
  for (const size_t rank : kProbeOrder) {
    if (taken.insert(task.probes[rank]).second) task.order.push_back(task.probes[rank]);
  }
  std::vector<size_t> rest;
  for (size_t i = 0; i < task.ranges.size(); ++i) {
    if (taken.count(i) == 0) rest.push_back(i);
  }
  const CounterRandom random(seed, RandomPurpose::kShuffle, 2, 0);
  for (uint64_t i = rest.size(); i > 1; --i)
    std::swap(rest[i - 1], rest[random.Below(i, static_cast<uint32_t>(i))]);
  task.order.insert(task.order.end(), rest.begin(), rest.end());
}

absl::StatusOr<DeviceTask> TaskOf(const DeviceProfile& profile, const ModelSpec& model,
                                  int64_t batch, int64_t max_macs) {
  DeviceTask task;
  task.family = profile.family;
  task.configuration = profile.name;
  task.recipe = profile.recipe;
  task.model = model.name;
  task.batch = batch;
  task.central = profile.threads == 1 && profile.cpu_share == 1 && profile.backend == "cpu" &&
                 profile.load == "none";
  RUNNEL_ASSIGN_OR_RETURN(ModelWork work, ModelWork::Create(model, batch));
  task.work = std::make_shared<const ModelWork>(std::move(work));
  std::map<LayerRange, size_t> index;
  for (const SubModelTime& row : profile.sub_models) {
    if (row.model != model.name || row.batch != batch) continue;
    if (row.range.last_layer >= model.layer_count()) {
      return InProfile(profile, absl::StrCat(model.name, " has no layer ", row.range.last_layer));
    }
    index[row.range] = task.ranges.size();
    task.ranges.push_back(row.range);
    task.seconds.push_back(row.seconds_1);
    task.second_seconds.push_back(row.seconds_2);
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerRange> probes,
                          RepresentativeRanges(model, max_macs));
  for (const LayerRange& probe : probes) {
    const auto found = index.find(probe);
    if (found == index.end()) {
      return InProfile(profile, absl::StrCat("layers ", probe.first_layer, " to ", probe.last_layer,
                                             " of ", model.name,
                                             ", which characterise a device, "
                                             "were not measured"));
    }
    task.probes.push_back(found->second);
  }
  FillOrder(static_cast<uint64_t>(batch), task);
  return task;
}

}  // namespace

std::vector<float> DeviceTask::Hardware() const {
  std::vector<float> hardware;
  for (const size_t probe : probes)
    hardware.push_back(static_cast<float>(std::log(seconds[probe])));
  return hardware;
}

std::vector<size_t> DeviceTask::Samples(size_t count) const {
  return {order.begin(), order.begin() + static_cast<int64_t>(std::min(count, order.size()))};
}

bool DeviceTask::IsProbe(size_t range) const {
  return std::find(probes.begin(), probes.end(), range) != probes.end();
}

absl::StatusOr<std::vector<DeviceTask>> TasksOf(absl::Span<const DeviceProfile> profiles,
                                                int64_t max_macs, const FindModelFn& find_model) {
  std::vector<DeviceTask> tasks;
  for (const DeviceProfile& profile : profiles) {
    std::vector<std::pair<std::string, int64_t>> models;
    for (const SubModelTime& row : profile.sub_models) {
      const std::pair<std::string, int64_t> key(row.model, row.batch);
      if (std::find(models.begin(), models.end(), key) == models.end()) models.push_back(key);
    }
    for (const auto& [name, batch] : models) {
      const absl::StatusOr<ModelSpec> model = find_model(name);
      if (!model.ok()) return InProfile(profile, model.status().message());
      RUNNEL_ASSIGN_OR_RETURN(DeviceTask task, TaskOf(profile, *model, batch, max_macs));
      tasks.push_back(std::move(task));
    }
  }
  return tasks;
}

}  // namespace runnel
