#include "predictor/train/training_samples.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "predictor/judge/cross_validate.h"
#include "predictor/run/accept_row.h"
#include "predictor/run/mlp_row.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kSampleCounts[] = {0, 2, 4, 8, 14};

// One task as a new device: the ranges outside of what was measured, fold by fold.
class NewDevice {
 public:
  NewDevice(const DeviceTask& task, DeviceMixture::Known known)
      : task_(task), known_(std::move(known)), both_passes_(task.BothPasses()) {}

  absl::Status AddTo(int fold, size_t count, std::vector<MlpSample>& samples) const {
    const std::vector<size_t> later = task_.Samples(fold, count);
    std::set<size_t> measured(task_.informative.begin(), task_.informative.end());
    measured.insert(later.begin(), later.end());
    std::vector<Observation> own;
    for (const size_t i : measured) own.push_back({task_.ranges[i], task_.seconds[i]});
    RUNNEL_ASSIGN_OR_RETURN(const MlpView view,
                            MlpView::Fit(known_, own, task_.batch, later.size()));
    for (size_t i = 0; i < task_.ranges.size(); ++i) {
      const bool other_fold = task_.fold[i] != fold && task_.fold[i] != DeviceTask::kNotJudged;
      if (other_fold || measured.count(i) > 0) continue;
      MlpView::Range range = view.View(task_.ranges[i]);
      const double target = std::log(both_passes_[i].seconds) - range.log_mixture;
      samples.push_back(
          {std::move(range.inputs), view.device(),
           static_cast<float>(std::clamp(target, -kMostCorrection, kMostCorrection))});
    }
    return absl::OkStatus();
  }

 private:
  const DeviceTask& task_;
  DeviceMixture::Known known_;
  std::vector<Observation> both_passes_;
};

}  // namespace

absl::StatusOr<TrainingSet> TrainingSet::Create(std::vector<DeviceTask> tasks) {
  TrainingSet set;
  RUNNEL_ASSIGN_OR_RETURN(set.devices, DevicesOf(tasks));
  set.tasks = std::move(tasks);
  return set;
}

absl::StatusOr<std::vector<MlpSample>> MlpTrainingSamples(const TrainingSet& set,
                                                          const MayLearnFn& may_learn) {
  std::vector<MlpSample> samples;
  std::map<std::pair<std::string, std::string>, DeviceMixture::Known> others;  // model, family
  for (size_t t = 0; t < set.tasks.size(); ++t) {
    const DeviceTask& task = set.tasks[t];
    if (!may_learn(task)) continue;
    DeviceMixture::Known& known = others[{task.model, task.family}];
    if (known == nullptr) {
      std::vector<KnownDevice> devices;
      for (size_t i = 0; i < set.tasks.size(); ++i) {
        const DeviceTask& other = set.tasks[i];
        if (may_learn(other) && other.model == task.model && other.family != task.family)
          devices.push_back(set.devices[i]);
      }
      known = std::make_shared<const std::vector<KnownDevice>>(std::move(devices));
    }
    if (known->empty()) continue;
    const NewDevice device(task, known);
    for (int fold = 0; fold < DeviceTask::kFolds; ++fold) {
      const size_t turn = (t + static_cast<size_t>(fold)) % std::size(kSampleCounts);
      RUNNEL_RETURN_IF_ERROR(device.AddTo(fold, kSampleCounts[turn], samples));
    }
  }
  return samples;
}

std::vector<MlpSample> AcceptTrainingSamples(const TrainingSet& set, const std::string& model,
                                             const MayLearnFn& may_learn) {
  std::vector<MlpSample> samples;
  for (size_t t = 0; t < set.tasks.size(); ++t) {
    const DeviceTask& task = set.tasks[t];
    if (task.model != model || !may_learn(task)) continue;
    for (MlpSample& sample : AcceptSamples(set.devices[t], task.Ten()))
      samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace runnel
