#include "central/planning/device_corrections.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace runnel {
namespace {

// Where load beside the pipeline comes and goes, measuring again and again only costs time.
constexpr int kMaxPatience = 64;

}  // namespace

bool DeviceCorrections::Observe(const BarrierReport& report) {
  if (observed_step_ != report.step) {
    observed_step_ = report.step;
    is_enough_ = !report.times.empty() && CompareStages(report);
  }
  return is_enough_;
}

bool DeviceCorrections::CompareStages(const BarrierReport& report) {
  ratios_.resize(report.devices.size(), 1.0);
  comparisons_.resize(report.devices.size());
  if (report.plan.generation != generation_ || progress_.size() != report.stages.size()) {
    generation_ = report.plan.generation;
    // Micro-batches are counted over the run, time since the plan holds.
    progress_.assign(report.stages.size(), {report.first_sequence.value()});
  }
  bool is_enough = true;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const StagePlan& stage = report.stages[i].plan;
    const int device = stage.device.value();
    const LayerRange range{stage.first_layer, stage.last_layer};
    const std::optional<double> seconds = MicroBatchSeconds(
        report.stages[i].telemetry, report.devices[device].processor_share, progress_[i]);
    if (!seconds.has_value()) {
      is_enough = false;
    } else if (options_.predictor != nullptr) {
      CompareWithPredictor(device, {range, *seconds});
    } else if (const double profiled = report.times[device].Seconds(range); profiled > 0) {
      ratios_[device] = *seconds / profiled;
    }
  }
  return is_enough;
}

// Returns nothing if too few micro-batches were seen. Under a CPU quota, time not used while
// waiting is credited, so wall time under-states the cost of any stage but the slowest. Use the
// larger of wall time and processor time divided by the share.
std::optional<double> DeviceCorrections::MicroBatchSeconds(const Telemetry& telemetry,
                                                           double processor_share,
                                                           Progress& last) const {
  const int64_t done = telemetry.backwards - last.backwards;
  const int64_t busy_ns = telemetry.busy_ns - last.busy_ns;
  const int64_t processor_ns = telemetry.busy_processor_ns - last.busy_processor_ns;
  if (done < options_.min_micro_batches || busy_ns <= 0) return std::nullopt;
  last = {telemetry.backwards, telemetry.busy_ns, telemetry.busy_processor_ns};
  const double total_ns =
      std::max(static_cast<double>(busy_ns), static_cast<double>(processor_ns) / processor_share);
  return total_ns * 1e-9 / static_cast<double>(done);
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

double DeviceCorrections::MeasurementSeconds(int device) const {
  double seconds = options_.fixed_measure_seconds;
  for (const LayerRange& range : options_.predictor->representatives()) {
    seconds += static_cast<double>(options_.measured_runs) * ratios_[device] *
               options_.predictor->Seconds(device, range);
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

std::vector<DeviceTimes> DeviceCorrections::CorrectedTimes(const BarrierReport& report) const {
  std::vector<DeviceTimes> times = report.times;
  for (size_t device = 0; device < times.size(); ++device) {
    if (options_.predictor != nullptr)
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
