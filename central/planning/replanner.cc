#include "central/planning/replanner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Hysteresis of codecs: a more exact codec is wanted only if it still fits at 80 % of the measured
// bandwidth and cuts the error to a quarter (one extra bit cuts the error to about a third).
constexpr double kCautiousBandwidth = 0.8;
constexpr double kWorthwhileErrorShare = 0.25;
// Periods within 0.1 % count as equal.
constexpr double kEqualPeriods = 1e-3;

MeasuredCluster WithTimes(MeasuredCluster cluster, std::vector<DeviceTimes> times) {
  cluster.times = std::move(times);
  return cluster;
}

MeasuredCluster WithBandwidthShare(MeasuredCluster cluster, double share) {
  cluster.rates = ScaleRates(std::move(cluster.rates), share);
  return cluster;
}

std::vector<int> DevicesThere(const BarrierReport& report) {
  std::vector<int> devices;
  for (size_t i = 0; i < report.devices.size(); ++i) {
    if (!report.devices[i].is_lost) devices.push_back(static_cast<int>(i));
  }
  return devices;
}

}  // namespace

std::vector<int> Replanner::DevicesToMeasure(const BarrierReport& report,
                                             const MeasuredCluster& cluster) {
  corrections_.Observe(report);
  const std::vector<int> changed = corrections_.ChangedDevices();
  if (changed.empty()) return {};
  const absl::StatusOr<double> period =
      plans_->PeriodSeconds(report.plan, WithTimes(cluster, corrections_.CorrectedTimes(report)));
  if (!period.ok()) return {};
  const double seconds_left = *period * static_cast<double>(MicroBatchesLeft(report));
  std::vector<int> devices;
  for (const int device : changed) {
    if (corrections_.MeasurementSeconds(device) < options_.max_measure_share * seconds_left)
      devices.push_back(device);
  }
  return devices;
}

std::optional<ChangePlan> Replanner::ProposeChange(const BarrierReport& report,
                                                   const MeasuredCluster& cluster) {
  if (std::exchange(generation_, report.plan.generation) != report.plan.generation)
    barriers_that_want_ = 0;
  const bool is_enough = corrections_.Observe(report);
  corrections_.FinishMeasurement();
  if (!is_enough) return std::nullopt;
  const MeasuredCluster corrected = WithTimes(cluster, corrections_.CorrectedTimes(report));
  const absl::StatusOr<TimedPlan> now = Time(report.plan, corrected);
  if (!now.ok()) return std::nullopt;
  absl::StatusOr<TimedPlan> next = FindBetterPlan(report, *now, corrected);
  if (!next.ok()) return std::nullopt;

  const double saved_seconds =
      (now->period_seconds - next->period_seconds) * static_cast<double>(MicroBatchesLeft(report));
  const double move_seconds = MoveSeconds(report, next->plan);
  const bool loses_less = LosesLess(*now, *next);
  const bool is_faster = next->period_seconds < now->period_seconds * (1 - options_.min_gain) &&
                         saved_seconds > move_seconds;
  barriers_that_want_ = is_faster || loses_less ? barriers_that_want_ + 1 : 0;
  if (barriers_that_want_ < options_.confirmations) return std::nullopt;
  barriers_that_want_ = 0;
  std::string why = absl::StrFormat(
      "step %d: %.4g -> %.4g s a micro-batch saves %.3g s until the end, "
      "moving takes about %.2g s%s",
      report.step, now->period_seconds, next->period_seconds, saved_seconds, move_seconds,
      corrections_.RatioText(report));
  if (loses_less) why += "; its codecs lose less";
  return ChangePlan{std::move(next->plan), std::move(why), corrected.times};
}

absl::StatusOr<Replanner::TimedPlan> Replanner::Time(absl::StatusOr<Plan> plan,
                                                     const MeasuredCluster& cluster) const {
  RUNNEL_RETURN_IF_ERROR(plan.status());
  RUNNEL_ASSIGN_OR_RETURN(const double period_seconds, plans_->PeriodSeconds(*plan, cluster));
  return TimedPlan{*std::move(plan), period_seconds};
}

// Without codecs that change: the policy's plan. With them: the policy's plan or the plan that
// holds with refitted codecs, whichever ends the run first; if neither saves the minimal share, the
// plan that holds with codecs that lose less.
absl::StatusOr<Replanner::TimedPlan> Replanner::FindBetterPlan(
    const BarrierReport& report, const TimedPlan& now, const MeasuredCluster& cluster) const {
  const std::vector<int> devices = DevicesThere(report);
  if (!options_.codecs_change) return Time(plans_->MakePlan(devices, cluster), cluster);
  const auto left = static_cast<double>(MicroBatchesLeft(report));
  TimedPlan best = now;
  const auto consider = [&](absl::StatusOr<Plan> plan) {
    absl::StatusOr<TimedPlan> timed = Time(std::move(plan), cluster);
    if (!timed.ok()) return;
    const double saved = (best.period_seconds - timed->period_seconds) * left;
    const double more_to_move = MoveSeconds(report, timed->plan) - MoveSeconds(report, best.plan);
    if (saved > more_to_move) best = *std::move(timed);
  };
  consider(plans_->RefitCodecs(report.plan, cluster));
  if (options_.layers_move) consider(plans_->MakePlan(devices, cluster));
  if (best.period_seconds < now.period_seconds * (1 - options_.min_gain)) return best;
  absl::StatusOr<TimedPlan> cautious = Time(
      plans_->RefitCodecs(report.plan, WithBandwidthShare(cluster, kCautiousBandwidth)), cluster);
  if (cautious.ok() && LosesLess(now, *cautious)) return cautious;
  return best;
}

bool Replanner::LosesLess(const TimedPlan& now, const TimedPlan& next) const {
  return options_.codecs_change && next.plan.stages == now.plan.stages &&
         next.period_seconds <= now.period_seconds * (1 + kEqualPeriods) &&
         plans_->CodingErrorOf(next.plan) < plans_->CodingErrorOf(now.plan) * kWorthwhileErrorShare;
}

int64_t Replanner::MicroBatchesLeft(const BarrierReport& report) const {
  return (options_.stop_step - report.step) * options_.micro_batches_a_step;
}

// A layer that moves crosses two links, because central is between the devices. We assume the
// slowest rate that was measured.
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
  LinkRate slowest;
  for (const StageStatus& stage : report.stages) {
    for (const double measured :
         {stage.telemetry.upstream_bytes_per_second, stage.telemetry.downstream_bytes_per_second}) {
      slowest = SlowerOf(slowest, LinkRate::BytesPerSecond(measured));
    }
  }
  const LinkRate rate = slowest.is_set() ? slowest : options_.given_rate;
  return options_.fixed_move_seconds + rate.Seconds(static_cast<double>(bytes));
}

}  // namespace runnel
