#include "predictor/run/run_predictor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/fit/informative_ranges.h"
#include "predictor/profiles/sub_models.h"
#include "predictor/run/device_task.h"
#include "proto/base/plan/layer_range.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// The profile without the rows of other models.
DeviceProfile OnlyOf(const DeviceProfile& profile, const std::string& model) {
  DeviceProfile only = profile;
  std::erase_if(only.sub_models, [&](const SubModelTime& row) { return row.model != model; });
  return only;
}

}  // namespace

absl::StatusOr<std::vector<KnownDevice>> KnownDevices(absl::Span<const DeviceProfile> profiles,
                                                      const ModelSpec& model) {
  std::vector<KnownDevice> known;
  for (const DeviceProfile& profile : profiles) {
    const DeviceProfile only = OnlyOf(profile, model.name);
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceTask> tasks,
                            TasksOf({only}, kMaxProfiledMacs, [&](absl::string_view) {
                              return absl::StatusOr<ModelSpec>(model);
                            }));
    for (const DeviceTask& task : tasks) {
      absl::StatusOr<KnownDevice> device =
          KnownDevice::Create(*task.work, task.batch, task.BothPasses(), task.central);
      if (!device.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("profile ", profile.name, ", ", model.name,
                                                       ": ", device.status().message()));
      }
      known.push_back(*std::move(device));
    }
  }
  return known;
}

absl::StatusOr<RunPredictor> RunPredictor::Create(const PredictorRow* row,
                                                  PredictorKnowledge knowledge,
                                                  const PredictorOptions& options) {
  RUNNEL_RETURN_IF_ERROR(CheckKnowledge(*row, knowledge));
  return RunPredictor(row, std::move(knowledge), options);
}

absl::Status RunPredictor::Characterise(int device, absl::Span<const double> seconds) {
  if (seconds.size() != representatives_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("device ", device, ": ", seconds.size(),
                                                   " times of ", representatives_.size(),
                                                   " representative sub-models"));
  }
  std::vector<Observation> observations;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (!(seconds[i] > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", device, ": ", seconds[i], " s is no time of a sub-model"));
    }
    observations.push_back(AsTrained({representatives_[i], seconds[i]}));
  }
  RUNNEL_ASSIGN_OR_RETURN(DevicePredictor predictor,
                          DevicePredictor::Create(row_, knowledge_, observations, options_));
  devices_.insert_or_assign(device, std::move(predictor));
  times_.erase(device);
  return absl::OkStatus();
}

double RunPredictor::Seconds(int device, const LayerRange& range) const {
  return devices_.at(device).Seconds(range) * knowledge_->frozen.Of(range);
}

Observation RunPredictor::AsTrained(Observation observed) const {
  observed.seconds /= knowledge_->frozen.Of(observed.range);
  return observed;
}

DeviceTimes RunPredictor::Times(int device) const {
  const auto found = times_.find(device);
  if (found != times_.end()) return found->second;
  const int layers = knowledge_->work.layers();
  std::vector<double> seconds;
  for (const LayerRange& range : AllRanges(layers)) seconds.push_back(Seconds(device, range));
  return times_.emplace(device, DeviceTimes::ByRange(layers, std::move(seconds))).first->second;
}

absl::StatusOr<ReportOutcome> RunPredictor::Report(int device, const Observation& reported) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", device, ": its representative sub-models were not measured"));
  }
  times_.erase(device);
  return found->second.Report(AsTrained(reported));
}

}  // namespace runnel
