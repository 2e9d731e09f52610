#include "central/planning/replanner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

namespace runnel {
namespace {

// Where load beside the pipeline comes and goes, measuring again and again would only cost time.
constexpr int kMostPatience = 64;

}  // namespace

std::vector<int> Replanner::ToMeasure(const BarrierReport& report) {
  Take(report);
  std::vector<int> devices;
  for (const auto& [device, now] : changed_) {
    if (IsWorthMeasuring(report, device)) devices.push_back(device);
  }
  return devices;
}

std::optional<ChangePlan> Replanner::AtBarrier(const BarrierReport& report) {
  Take(report);
  Settle();
  if (!enough_) return std::nullopt;
  std::vector<int> devices;
  for (size_t i = 0; i < report.devices.size(); ++i) {
    if (!report.devices[i].is_lost) devices.push_back(static_cast<int>(i));
  }
  std::vector<DeviceTimes> seconds = Corrected(report);
  const absl::StatusOr<Plan> next = NextPlan(report, devices, seconds);
  if (!next.ok()) return std::nullopt;
  const absl::StatusOr<double> now = options_.period_seconds(report.plan, seconds);
  const absl::StatusOr<double> then = options_.period_seconds(*next, seconds);
  if (!now.ok() || !then.ok()) return std::nullopt;

  const int64_t left = (options_.stop_step - report.step) * options_.micro_batches_a_step;
  const double saved_seconds = (*now - *then) * static_cast<double>(left);
  const double move_seconds = MoveSeconds(report, *next);
  const bool wants = (*then < *now * (1 - options_.min_gain) && saved_seconds > move_seconds) ||
                     IsMoreExact(report.plan, *next, *now, *then);
  wanted_ = wants ? wanted_ + 1 : 0;
  if (wanted_ < options_.confirmations) return std::nullopt;
  wanted_ = 0;
  std::string why = absl::StrFormat(
      "step %d: %.4g -> %.4g s a micro-batch saves %.3g s until the end, "
      "moving takes about %.2g s%s",
      report.step, *now, *then, saved_seconds, move_seconds, OffText(report));
  if (IsMoreExact(report.plan, *next, *now, *then)) why += "; its codecs lose less";
  return ChangePlan{*next, std::move(why), std::move(seconds)};
}

// Once at a barrier, whoever asks first.
void Replanner::Take(const BarrierReport& report) {
  if (taken_ == report.step) return;
  taken_ = report.step;
  enough_ = !report.times.empty() && Measure(report);
}

// Takes in what the stages did since the last report; false if that is too little.
bool Replanner::Measure(const BarrierReport& report) {
  slowdowns_.resize(report.devices.size(), 1.0);
  comparisons_.resize(report.devices.size());
  if (report.plan.generation != generation_ || seen_.size() != report.stages.size()) {
    generation_ = report.plan.generation;
    // Micro-batches are counted over the run, time since the plan holds.
    seen_.assign(report.stages.size(), {report.first_sequence.value()});
    wanted_ = 0;
  }
  bool enough = true;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const StagePlan& stage = report.stages[i].plan;
    const int device = stage.device.value();
    const std::optional<double> took =
        TakeStage(report.stages[i].telemetry, report.devices[device].processor_share, seen_[i]);
    if (!took.has_value()) {
      enough = false;
      continue;
    }
    if (options_.predictor != nullptr) {
      Compare(device, {{stage.first_layer, stage.last_layer}, *took});
      continue;
    }
    const double profiled = report.times[device].Seconds({stage.first_layer, stage.last_layer});
    if (profiled > 0) slowdowns_[device] = *took / profiled;
  }
  return enough;
}

// Seconds of a micro-batch since the stage was last looked at; none: too few. A device that has
// less than a processor catches up at full speed what it did not use while its stage waited: unless
// it is the slowest the wall clock says too little. What a profile has, too, is processor time over
// its share; where the share has shrunk since, the wall clock says more.
std::optional<double> Replanner::TakeStage(const Telemetry& telemetry, double processor_share,
                                           Seen& seen) {
  const int64_t done = telemetry.backwards - seen.backwards;
  const int64_t busy_ns = telemetry.busy_ns - seen.busy_ns;
  const int64_t processor_ns = telemetry.busy_processor_ns - seen.busy_processor_ns;
  if (done < options_.min_micro_batches || busy_ns <= 0) return std::nullopt;
  seen = {telemetry.backwards, telemetry.busy_ns, telemetry.busy_processor_ns};
  const double took_ns =
      std::max(static_cast<double>(busy_ns), static_cast<double>(processor_ns) / processor_share);
  return took_ns * 1e-9 / static_cast<double>(done);
}

void Replanner::Compare(int device, const Observation& now) {
  Comparison& comparison = comparisons_[device];
  const absl::StatusOr<ReportOutcome> outcome =
      options_.predictor->Report(device, {now.range, now.seconds / comparison.settled});
  if (!outcome.ok()) return;
  if (*outcome == ReportOutcome::kLearned) {
    comparison.reports_off = 0;
    slowdowns_[device] = comparison.settled;
    return;
  }
  slowdowns_[device] = now.seconds / options_.predictor->Seconds(device, now.range);
  if (++comparison.reports_off >= options_.confirmations * comparison.patience)
    changed_[device] = now;
}

// The devices that changed have been measured again, or could not be.
void Replanner::Settle() {
  for (const auto& [device, now] : changed_) {
    const absl::StatusOr<ReportOutcome> outcome = options_.predictor->Report(device, now);
    const bool is_explained = outcome.ok() && *outcome == ReportOutcome::kLearned;
    const double predicted = options_.predictor->Seconds(device, now.range);
    Comparison& comparison = comparisons_[device];
    comparison.settled = is_explained ? 1 : now.seconds / predicted;
    comparison.reports_off = 0;
    comparison.patience = is_explained ? 1 : std::min(2 * comparison.patience, kMostPatience);
    slowdowns_[device] = comparison.settled;
  }
  changed_.clear();
}

// The pipeline stands meanwhile.
bool Replanner::IsWorthMeasuring(const BarrierReport& report, int device) const {
  double seconds = options_.fixed_measure_seconds;
  for (const LayerRange& range : options_.predictor->representatives()) {
    seconds += static_cast<double>(options_.measured_runs) * slowdowns_[device] *
               options_.predictor->Seconds(device, range);
  }
  const absl::StatusOr<double> period = options_.period_seconds(report.plan, Corrected(report));
  const int64_t left = (options_.stop_step - report.step) * options_.micro_batches_a_step;
  return period.ok() && seconds < options_.max_measure_share * *period * static_cast<double>(left);
}

std::vector<DeviceTimes> Replanner::Corrected(const BarrierReport& report) const {
  std::vector<DeviceTimes> seconds = report.times;
  for (size_t device = 0; device < seconds.size(); ++device) {
    if (options_.predictor != nullptr)
      seconds[device] = options_.predictor->Times(static_cast<int>(device));
    seconds[device] = seconds[device].Scaled(slowdowns_[device]);
  }
  return seconds;
}

// The devices that a factor corrects, where a predictor should have known.
std::string Replanner::OffText(const BarrierReport& report) const {
  std::string text;
  for (size_t device = 0; options_.predictor != nullptr && device < slowdowns_.size(); ++device) {
    if (std::abs(slowdowns_[device] - 1) <= options_.predictor->epsilon()) continue;
    absl::StrAppendFormat(&text, "; %s by a capacity ratio of %.2f beside what is predicted",
                          report.devices[device].name, slowdowns_[device]);
  }
  return text;
}

// Layers go through central: over two links, of which the slowest that was measured may be one.
double Replanner::MoveSeconds(const BarrierReport& report, const Plan& next) const {
  int64_t bytes = 0;
  for (const StagePlan& stage : next.stages) {
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      const bool stays = std::any_of(report.plan.stages.begin(), report.plan.stages.end(),
                                     [&](const StagePlan& old) {
                                       return old.device == stage.device &&
                                              old.first_layer <= layer && layer <= old.last_layer;
                                     });
      if (!stays) bytes += 2 * options_.layer_state_bytes[layer];
    }
  }
  double bandwidth = 0;
  for (const StageStatus& stage : report.stages) {
    for (double measured :
         {stage.telemetry.upstream_bytes_per_second, stage.telemetry.downstream_bytes_per_second}) {
      if (measured > 0 && (bandwidth == 0 || measured < bandwidth)) bandwidth = measured;
    }
  }
  if (bandwidth == 0) bandwidth = options_.link_bytes_per_second;
  return options_.fixed_move_seconds + static_cast<double>(bytes) / bandwidth;
}

}  // namespace runnel
