#include "predictor/run/device_task.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/fit/informative_ranges.h"
#include "predictor/profiles/sub_models.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr uint64_t kFoldSeed = 1;
// |log(second pass / first pass)| above which one of the passes was disturbed.
constexpr double kFarApart = 0.3;

absl::Status InProfile(const DeviceProfile& profile, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("profile ", profile.name, ": ", what));
}

// Fills in `informative`, `fold` and `order`, which depend on the model and the batch size alone.
void ChooseRanges(uint64_t seed, DeviceTask& task) {
  const size_t size = task.ranges.size();
  task.informative = MostInformativeRanges(*task.work, task.ranges, {}, {}, kRepresentatives);
  std::set<size_t> taken(task.probes.begin(), task.probes.end());
  taken.insert(task.informative.begin(), task.informative.end());
  std::vector<size_t> judged;
  for (size_t i = 0; i < size; ++i) {
    if (taken.count(i) == 0) judged.push_back(i);
  }
  const CounterRandom random(seed, RandomPurpose::kShuffle, 2, 0);
  for (uint64_t i = judged.size(); i > 1; --i)
    std::swap(judged[i - 1], judged[random.Below(i, static_cast<uint32_t>(i))]);
  task.fold.assign(size, DeviceTask::kNotJudged);
  std::vector<std::vector<size_t>> folds(DeviceTask::kFolds);
  for (size_t i = 0; i < judged.size(); ++i) {
    const size_t fold = i % DeviceTask::kFolds;
    task.fold[judged[i]] = static_cast<int>(fold);
    folds[fold].push_back(judged[i]);
  }
  for (const std::vector<size_t>& fold : folds)
    task.order.push_back(
        MostInformativeRanges(*task.work, task.ranges, task.informative, fold, size));
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
  ChooseRanges(kFoldSeed, task);
  return task;
}

}  // namespace

std::vector<LayerRange> DeviceTask::Ten() const {
  std::vector<LayerRange> ten;
  for (const size_t probe : probes) ten.push_back(ranges[probe]);
  return ten;
}

std::vector<size_t> DeviceTask::Samples(int fold, size_t count) const {
  const std::vector<size_t>& all = order[static_cast<size_t>(fold)];
  return {all.begin(), all.begin() + static_cast<int64_t>(std::min(count, all.size()))};
}

std::vector<Observation> DeviceTask::BothPasses() const {
  std::vector<Observation> observations;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const double first = seconds[i];
    const double second = second_seconds[i] > 0 ? second_seconds[i] : first;
    const bool far_apart = std::abs(std::log(second / first)) > kFarApart;
    observations.push_back(
        {ranges[i], far_apart ? std::min(first, second) : std::sqrt(first * second)});
  }
  return observations;
}

absl::StatusOr<std::vector<double>> PredictByFold(
    const DeviceTask& task,
    const std::function<absl::StatusOr<std::vector<double>>(int fold)>& predict) {
  std::vector<double> result(task.ranges.size(), 0);
  for (int fold = 0; fold < DeviceTask::kFolds; ++fold) {
    if (std::find(task.fold.begin(), task.fold.end(), fold) == task.fold.end()) continue;
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> seconds, predict(fold));
    if (seconds.empty()) return seconds;
    for (size_t i = 0; i < result.size(); ++i) {
      if (task.fold[i] == fold) result[i] = seconds[i];
    }
  }
  return result;
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
