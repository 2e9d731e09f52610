#include "central/planning/measured/device_corrections.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace runnel {
namespace {

// Bound of the patience: where load beside the pipeline comes and goes, measuring again and again
// only costs time.
constexpr int kMaxPatience = 64;

}  // namespace

bool DeviceCorrections::Observe(const BarrierReport& report, const MeasuredCluster& cluster) {
  // After a recovery a step comes again, under another plan.
  if (observed_step_ != report.step || generation_ != report.plan.generation) {
    observed_step_ = report.step;
    is_enough_ = !report.times.empty() && CompareStages(report, cluster);
  }
  return is_enough_;
}

bool DeviceCorrections::CompareStages(const BarrierReport& report, const MeasuredCluster& cluster) {
  ratios_.resize(report.devices.size(), 1.0);
  comparisons_.resize(report.devices.size());
  if (report.plan.generation != generation_ || paces_.size() != report.stages.size()) {
    generation_ = report.plan.generation;
    paces_.assign(report.stages.size(), StagePace(report.first_sequence.value()));
  }
  ForgetIdleDevices(report.plan);
  const std::vector<int> computing = report.plan.sole_devices();
  bool is_enough = true;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const StagePlan& stage = report.stages[i].plan;
    const int device = stage.sole_device();
    const LayerRange range{stage.first_layer, stage.last_layer};
    const std::optional<StagePace::Figures> pace =
        paces_[i].Report(report.stages[i].telemetry, report.devices[device].processor_share,
                         cluster.SpeedAmong(computing, device), options_.min_micro_batches);
    if (!pace.has_value()) {
      is_enough = false;
      continue;
    }
    const double seconds = pace->busy_seconds / (stage.recompute ? kRecomputeTime : 1);
    if (options_.predictor != nullptr) {
      CompareWithPredictor(device, {range, seconds});
    } else if (const double profiled = ProfileOf(device, report).Seconds(range); profiled > 0) {
      const bool is_unit = options_.by_first_device && device == 0;
      ratios_[device] = is_unit ? 1 : seconds / profiled;
    }
  }
  return is_enough;
}

const DeviceTimes& DeviceCorrections::ProfileOf(size_t device, const BarrierReport& report) const {
  return report.times[options_.by_first_device ? 0 : device];
}

void DeviceCorrections::ForgetIdleDevices(const Plan& plan) {
  const auto forget = [this](double& ratio) {
    ratio = 1 + (ratio - 1) * (1 - options_.forgotten_share);
  };
  for (size_t device = 0; device < ratios_.size(); ++device) {
    if (plan.Uses(static_cast<int>(device))) continue;
    forget(ratios_[device]);
    forget(comparisons_[device].unexplained_ratio);
  }
}

void DeviceCorrections::CompareWithPredictor(int device, const Observation& now) {
  Comparison& comparison = comparisons_[device];
  const absl::StatusOr<ReportOutcome> outcome =
      options_.predictor->Report(device, {now.range, now.seconds / comparison.unexplained_ratio});
  if (!outcome.ok()) return;
  if (*outcome == ReportOutcome::kLearned) {
    comparison.reports_off = 0;
    ratios_[device] = comparison.unexplained_ratio;
    return;
  }
  ratios_[device] = now.seconds / options_.predictor->Seconds(device, now.range);
  if (++comparison.reports_off >= options_.confirmations * comparison.patience)
    changed_[device] = now;
}

std::vector<int> DeviceCorrections::ChangedDevices() const {
  std::vector<int> devices;
  for (const auto& [device, now] : changed_) devices.push_back(device);
  return devices;
}

double DeviceCorrections::MeasurementSeconds(int device, const BarrierReport& report) const {
  double seconds = options_.fixed_measure_seconds;
  const auto runs = static_cast<double>(options_.measured_runs);
  // Each layer by itself, then parts (layer_profile.h).
  if (options_.predictor == nullptr)
    return seconds + 2 * runs * ratios_[device] * ProfileOf(device, report).Sum();
  for (const LayerRange& range : options_.predictor->representatives()) {
    seconds += runs * ratios_[device] * options_.predictor->Seconds(device, range);
  }
  return seconds;
}

void DeviceCorrections::FinishMeasurement() {
  for (const auto& [device, now] : changed_) {
    const absl::StatusOr<ReportOutcome> outcome = options_.predictor->Report(device, now);
    const bool is_explained = outcome.ok() && *outcome == ReportOutcome::kLearned;
    const double predicted = options_.predictor->Seconds(device, now.range);
    Comparison& comparison = comparisons_[device];
    comparison.unexplained_ratio = is_explained ? 1 : now.seconds / predicted;
    comparison.reports_off = 0;
    comparison.patience = is_explained ? 1 : std::min(2 * comparison.patience, kMaxPatience);
    ratios_[device] = comparison.unexplained_ratio;
  }
  changed_.clear();
}

void DeviceCorrections::Remeasured(const std::vector<int>& devices) {
  for (const int device : devices) {
    ratios_[device] = 1;
    comparisons_[device] = {};
    changed_.erase(device);
  }
}

std::vector<DeviceTimes> DeviceCorrections::CorrectedTimes(const BarrierReport& report) const {
  std::vector<DeviceTimes> times = report.times;
  for (size_t device = 0; device < times.size(); ++device) {
    times[device] = ProfileOf(device, report);
    if (options_.predictor != nullptr && options_.predictor->Knows(static_cast<int>(device)))
      times[device] = options_.predictor->Times(static_cast<int>(device));
    times[device] = times[device].Scaled(ratios_[device]);
  }
  return times;
}

std::string DeviceCorrections::RatioText(const BarrierReport& report) const {
  std::string text;
  for (size_t device = 0; options_.predictor != nullptr && device < ratios_.size(); ++device) {
    if (std::abs(ratios_[device] - 1) <= options_.predictor->epsilon()) continue;
    absl::StrAppendFormat(&text, "; %s by a capacity ratio of %.2f beside what is predicted",
                          report.devices[device].name, ratios_[device]);
  }
  return text;
}

}  // namespace runnel
