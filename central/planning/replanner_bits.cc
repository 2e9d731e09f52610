#include "central/planning/replanner.h"

namespace runnel {
namespace {

// Codecs that lose less are wanted where the links had time for them with this share of what they
// carry now, and if they lose less than this share of what is lost: one bit is about a factor of
// three. So bits that just fit do not come and go.
constexpr double kCautiousBandwidth = 0.8;
constexpr double kWorthErrors = 0.25;
// Periods nearer than this count as equal.
constexpr double kAlike = 1e-3;

}  // namespace

// The policy's plan, or the plan that holds with other bits, whichever ends the run first; where
// neither is worth much, bits that lose less.
absl::StatusOr<Plan> Replanner::NextPlan(const BarrierReport& report,
                                         const std::vector<int>& devices,
                                         const std::vector<DeviceTimes>& seconds) const {
  if (!options_.fit_bits) return options_.make_plan(devices, seconds);
  const absl::StatusOr<double> now = options_.period_seconds(report.plan, seconds);
  if (!now.ok()) return now.status();
  const auto left =
      static_cast<double>((options_.stop_step - report.step) * options_.micro_batches_a_step);
  absl::StatusOr<Plan> best = report.plan;
  double best_period = *now;
  const auto consider = [&](const absl::StatusOr<Plan>& plan) {
    if (!plan.ok()) return;
    const absl::StatusOr<double> period = options_.period_seconds(*plan, seconds);
    if (!period.ok()) return;
    const double saved = (best_period - *period) * left;
    const double more_to_move = MoveSeconds(report, *plan) - MoveSeconds(report, *best);
    if (saved <= more_to_move) return;
    best = plan;
    best_period = *period;
  };
  consider(options_.fit_bits(report.plan, seconds, 1));
  if (options_.make_plan) consider(options_.make_plan(devices, seconds));
  if (best_period < *now * (1 - options_.min_gain)) return best;
  absl::StatusOr<Plan> cautious = options_.fit_bits(report.plan, seconds, kCautiousBandwidth);
  if (!cautious.ok()) return best;
  const absl::StatusOr<double> then = options_.period_seconds(*cautious, seconds);
  if (then.ok() && IsMoreExact(report.plan, *cautious, *now, *then)) return cautious;
  return best;
}

bool Replanner::IsMoreExact(const Plan& plan, const Plan& next, double now_seconds,
                            double next_seconds) const {
  return options_.fit_bits != nullptr && next.stages == plan.stages &&
         next_seconds <= now_seconds * (1 + kAlike) &&
         options_.coding_error(next) < options_.coding_error(plan) * kWorthErrors;
}

}  // namespace runnel
