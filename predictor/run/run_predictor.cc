#include "predictor/run/run_predictor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/profiles/sub_models.h"
#include "predictor/run/device_task.h"
#include "predictor/run/informative_ranges.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/layer_range.h"

namespace runnel {
namespace {

// The ranges that every known device measured.
std::vector<LayerRange> MeasuredByAll(absl::Span<const KnownDevice> known) {
  std::vector<LayerRange> ranges = known[0].MeasuredRanges();
  for (const KnownDevice& device : known)
    std::erase_if(ranges, [&](const LayerRange& range) { return !device.Measured(range); });
  return ranges;
}

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
          KnownDevice::Create(*task.work, task.batch, task.BothPasses());
      if (!device.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("profile ", profile.name, ", ", model.name,
                                                       ": ", device.status().message()));
      }
      known.push_back(*std::move(device));
    }
  }
  return known;
}

absl::StatusOr<RunPredictor> RunPredictor::Create(const ModelSpec& model, int64_t batch,
                                                  std::vector<KnownDevice> known,
                                                  const PredictorOptions& options) {
  RUNNEL_ASSIGN_OR_RETURN(ModelWork work, ModelWork::Create(model, batch));
  RunPredictor predictor(std::move(work), std::move(known), options);
  predictor.batch_ = batch;
  if (!predictor.known_->empty()) {
    const std::vector<LayerRange> ranges = MeasuredByAll(*predictor.known_);
    for (const size_t i : MostInformativeRanges(predictor.work_, ranges, {}, {}, kRepresentatives))
      predictor.representatives_.push_back(ranges[i]);
    return predictor;
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                          RepresentativeRanges(model, kMaxProfiledMacs));
  // A model of few layers has some representatives twice.
  for (const LayerRange& range : ranges) {
    std::vector<LayerRange>& chosen = predictor.representatives_;
    if (std::find(chosen.begin(), chosen.end(), range) == chosen.end()) chosen.push_back(range);
  }
  return predictor;
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
    observations.push_back({representatives_[i], seconds[i]});
  }
  RUNNEL_ASSIGN_OR_RETURN(DevicePredictor predictor,
                          known_->empty()
                              ? DevicePredictor::Create(work_, ColdStartPrior(work_, observations),
                                                        observations, options_)
                              : DevicePredictor::Create(known_, batch_, observations, options_));
  devices_.insert_or_assign(device, std::move(predictor));
  return absl::OkStatus();
}

double RunPredictor::Seconds(int device, const LayerRange& range) const {
  return devices_.at(device).Seconds(range);
}

DeviceTimes RunPredictor::Times(int device) const {
  const DevicePredictor& predictor = devices_.at(device);
  std::vector<double> seconds;
  for (const LayerRange& range : AllRanges(work_.layers()))
    seconds.push_back(predictor.Seconds(range));
  return DeviceTimes::ByRange(work_.layers(), std::move(seconds));
}

absl::StatusOr<ReportOutcome> RunPredictor::Report(int device, const Observation& reported) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", device, ": its representative sub-models were not measured"));
  }
  return found->second.Report(reported);
}

}  // namespace runnel
