#include "central/planning/replanner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Hysteresis of codecs: more exact ones are wanted only if they are charged that much less, and
// still are with 80 % of the measured bandwidth.
constexpr double kCautiousBandwidth = 0.8;
constexpr double kWorthwhileCharge = 0.01;
constexpr double kNeverAlike = std::numeric_limits<double>::infinity();

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

// Ratio of the larger figure to the smaller one, less 1.
double Apart(double a, double b) {
  if (a == b) return 0;
  return a > 0 && b > 0 ? std::max(a, b) / std::min(a, b) - 1 : kNeverAlike;
}

// Where either of them has measured a place.
double Apart(const NoiseRatios& a, const NoiseRatios& b) {
  double apart = Apart(a.all, b.all);
  for (const Direction direction : kDirections) {
    for (const NoiseRatios* one : {&a, &b}) {
      const auto& places = direction == Direction::kForward ? one->forward : one->backward;
      for (const auto& [layer, ratio] : places)
        apart = std::max(apart, Apart(a.At(layer, direction), b.At(layer, direction)));
    }
  }
  return apart;
}

// Largest distance between the figures of two clusters. Delays count as shares of the period that
// they may lengthen.
double Apart(const MeasuredCluster& a, const MeasuredCluster& b, double period_seconds) {
  if (a.times.size() != b.times.size() || a.rates.size() != b.rates.size()) return kNeverAlike;
  if (a.link_bits != b.link_bits) return kNeverAlike;
  double apart = Apart(a.noise_ratios, b.noise_ratios);
  for (size_t i = 0; i < a.times.size(); ++i)
    apart = std::max(apart, Apart(a.times[i].Sum(), b.times[i].Sum()));
  for (size_t i = 0; i < a.rates.size(); ++i) {
    for (size_t j = 0; j < a.rates.size(); ++j) {
      const WayFigures& one = a.rates[i][j];
      const WayFigures& other = b.rates[i][j];
      if (one.medium != other.medium) return kNeverAlike;
      const double delay = one.delay_seconds.value_or(0) - other.delay_seconds.value_or(0);
      apart = std::max(
          {apart, Apart(one.rate.mbps(), other.rate.mbps()), std::abs(delay) / period_seconds});
    }
  }
  return apart;
}

bool IsSamePlan(const Plan& a, const Plan& b) { return a.stages == b.stages && a.links == b.links; }

// Medium of one direction of a device's path to central's host; -1: none is known.
int MediumOfPath(const LinkRates& rates, const std::vector<bool>& locals, int device, bool is_up) {
  const auto local = std::find(locals.begin(), locals.end(), true);
  if (rates.empty() || local == locals.end()) return -1;
  const auto central = static_cast<size_t>(local - locals.begin());
  const auto other = static_cast<size_t>(device);
  return is_up ? rates[other][central].medium : rates[central][other].medium;
}

// Slowest rate of the current plan's links.
LinkRate SlowestRate(const BarrierReport& report) {
  LinkRate slowest;
  for (const StageStatus& stage : report.stages) {
    for (const double measured :
         {stage.telemetry.upstream_bytes_per_second, stage.telemetry.downstream_bytes_per_second}) {
      slowest = SlowerOf(slowest, LinkRate::BytesPerSecond(measured));
    }
  }
  return slowest;
}

}  // namespace

std::vector<int> Replanner::DevicesToMeasure(const BarrierReport& report,
                                             const MeasuredCluster& cluster) {
  corrections_.Observe(report, cluster);
  const std::vector<int> changed = corrections_.ChangedDevices();
  if (changed.empty()) return {};
  const double most_seconds = options_.max_measure_share * SecondsLeft(report, cluster);
  std::vector<int> devices;
  for (const int device : changed) {
    if (corrections_.MeasurementSeconds(device, report) < most_seconds) devices.push_back(device);
  }
  return devices;
}

// 0: not known.
double Replanner::SecondsLeft(const BarrierReport& report, const MeasuredCluster& cluster) const {
  const absl::StatusOr<PlanRating> rating =
      plans_->Rate(report.plan, WithTimes(cluster, corrections_.CorrectedTimes(report)));
  return rating.value_or(PlanRating()).period_seconds *
         static_cast<double>(MicroBatchesLeft(report));
}

std::vector<int> Replanner::IdleDevicesToMeasure(const BarrierReport& report,
                                                 const MeasuredCluster& cluster,
                                                 const Plan& next) const {
  const double most_seconds = options_.max_measure_share * SecondsLeft(report, cluster);
  std::vector<int> devices;
  for (const int device : next.devices()) {
    const double ratio = corrections_.ratios()[static_cast<size_t>(device)];
    if (!report.plan.Uses(device) && std::abs(ratio - 1) > options_.idle_ratio_off &&
        corrections_.MeasurementSeconds(device, report) < most_seconds) {
      devices.push_back(device);
    }
  }
  return devices;
}

std::optional<ChangePlan> Replanner::Reconsider(const BarrierReport& report,
                                                const MeasuredCluster& cluster, const Plan& next,
                                                const std::vector<int>& remeasured) {
  corrections_.Remeasured(remeasured);
  MeasuredCluster corrected = WithTimes(cluster, corrections_.CorrectedTimes(report));
  absl::StatusOr<RatedPlan> now = Rate(*plans_, report.plan, corrected);
  absl::StatusOr<RatedPlan> then = Rate(*plans_, next, corrected);
  if (!now.ok() || !then.ok()) return std::nullopt;
  const Question question = Ask(report, *std::move(now), std::move(corrected));
  const Gain gain = GainOf(question, *then);
  if (!gain.is_worth_it()) return std::nullopt;
  return ChangeTo(*std::move(then), gain, report, question);
}

std::optional<ChangePlan> Replanner::ProposeChange(const BarrierReport& report,
                                                   const MeasuredCluster& cluster) {
  const bool is_other_plan =
      std::exchange(generation_, report.plan.generation) != report.plan.generation;
  const bool is_enough = corrections_.Observe(report, cluster);
  corrections_.FinishMeasurement();
  if (is_other_plan) asked_.reset();  // an answer that is still to come is about the plan before
  TakeAnswer();
  if (is_other_plan) {
    candidate_.reset();
    unsettled_reports_ = 0;
  }
  if (!is_enough) return std::nullopt;
  MeasuredCluster corrected = WithTimes(cluster, corrections_.CorrectedTimes(report));
  if (options_.takes_next) return TakeNext(report, corrected);
  absl::StatusOr<RatedPlan> now = Rate(*plans_, report.plan, corrected);
  if (!now.ok()) return std::nullopt;
  Question question = Ask(report, *std::move(now), std::move(corrected));
  std::optional<ChangePlan> change = Confirm(report, question);
  if (!change.has_value()) SearchIfNeeded(std::move(question));
  return change;
}

std::optional<ChangePlan> Replanner::PlanNow(const BarrierReport& report,
                                             const MeasuredCluster& cluster) {
  corrections_.Observe(report, cluster);
  corrections_.FinishMeasurement();
  // What is searched for or waits to be confirmed is about what was known before.
  asked_.reset();
  candidate_.reset();
  unsettled_reports_ = 0;
  MeasuredCluster corrected = WithTimes(cluster, corrections_.CorrectedTimes(report));
  absl::StatusOr<RatedPlan> now = Rate(*plans_, report.plan, corrected);
  if (!now.ok()) return std::nullopt;
  const Question question = Ask(report, *std::move(now), std::move(corrected));
  ReplannerOptions eager = options_;
  eager.min_gain = 0;
  absl::StatusOr<RatedPlan> best = FindBetterPlan(*plans_, eager, question);
  if (!best.ok()) return std::nullopt;
  const Gain gain = GainOf(question, *best);
  if (gain.saved_seconds <= gain.move_seconds) return std::nullopt;
  return ChangeTo(*std::move(best), gain, report, question);
}

std::optional<ChangePlan> Replanner::TakeNext(const BarrierReport& report,
                                              const MeasuredCluster& corrected) const {
  absl::StatusOr<Plan> next = plans_->NextPlan(report.plan, corrected);
  if (!next.ok() || IsSamePlan(*next, report.plan)) return std::nullopt;
  const auto ratio = [](std::string* out, double value) {
    absl::StrAppendFormat(out, "%.2f", value);
  };
  return ChangePlan{*std::move(next),
                    absl::StrFormat("step %d: by the capacity ratios %s", report.step,
                                    absl::StrJoin(corrections_.ratios(), ", ", ratio)),
                    corrected.times};
}

Replanner::Question Replanner::Ask(const BarrierReport& report, RatedPlan now,
                                   MeasuredCluster corrected) const {
  std::vector<bool> locals;
  for (const DeviceFacts& device : report.devices) locals.push_back(device.is_local);
  return {std::move(now),       std::move(corrected),
          DevicesThere(report), static_cast<double>(MicroBatchesLeft(report)),
          std::move(locals),    SlowestRate(report)};
}

// The search's own figures are the first report that wants the plan.
void Replanner::TakeAnswer() {
  std::optional<SearchAnswer> answer = search_->TakeAnswer();
  if (!answer.has_value()) return;
  ++searches_.done;
  searches_.processor_seconds += answer->processor_seconds;
  if (!asked_.has_value() || !answer->best.ok()) return;
  if (GainOf(*asked_, *answer->best).is_worth_it())
    candidate_ = Candidate{*std::move(answer->best), asked_->cluster, asked_->devices, 1};
}

std::optional<ChangePlan> Replanner::Confirm(const BarrierReport& report,
                                             const Question& question) {
  if (!candidate_.has_value()) return std::nullopt;
  absl::StatusOr<RatedPlan> next = Rate(*plans_, candidate_->plan.plan, question.cluster);
  const Gain gain = next.ok() ? GainOf(question, *next) : Gain();
  if (candidate_->devices != question.devices || !gain.is_worth_it()) {
    candidate_.reset();
    unsettled_reports_ = 0;
    return std::nullopt;
  }
  const double apart =
      Apart(candidate_->cluster, question.cluster, question.now.rating.period_seconds);
  if (apart > options_.usable_share) {
    if (++unsettled_reports_ < options_.confirmations) {
      candidate_.reset();
      return std::nullopt;
    }
  } else if (++candidate_->reports < options_.confirmations) {
    return std::nullopt;
  }
  unsettled_reports_ = 0;
  candidate_.reset();
  return ChangeTo(*std::move(next), gain, report, question);
}

ChangePlan Replanner::ChangeTo(RatedPlan next, const Gain& gain, const BarrierReport& report,
                               const Question& question) const {
  const PlanRating& now = question.now.rating;
  std::string why = absl::StrFormat("step %d: %.4g -> %.4g s a micro-batch", report.step,
                                    now.period_seconds, next.rating.period_seconds);
  const double saved_seconds =
      (now.period_seconds - next.rating.period_seconds) * question.micro_batches_left;
  if (saved_seconds > 0) {
    absl::StrAppendFormat(&why, " saves %.3g s until the end, moving takes about %.2g s",
                          saved_seconds, gain.move_seconds);
  }
  absl::StrAppend(&why, corrections_.RatioText(report));
  if (next.rating.noise < now.noise) absl::StrAppend(&why, "; its codecs lose less");
  return ChangePlan{std::move(next.plan), std::move(why), question.cluster.times};
}

// Not while a plan waits to be confirmed, and not for a gain that can no longer pay.
void Replanner::SearchIfNeeded(Question question) {
  const double seconds_left = question.now.rating.period_seconds * question.micro_batches_left;
  if (search_->under_way() || candidate_.has_value()) return;
  const double search_seconds =
      searches_.done > 0 ? searches_.processor_seconds / static_cast<double>(searches_.done) : 0;
  if (seconds_left < options_.fixed_move_seconds + search_seconds) return;
  const bool is_same = asked_.has_value() && asked_->devices == question.devices &&
                       Apart(asked_->cluster, question.cluster,
                             question.now.rating.period_seconds) <= options_.same_share;
  if (is_same) {
    ++searches_.skipped;
    return;
  }
  asked_ = question;
  search_->Begin([plans = plans_, options = options_, question = std::move(question)] {
    return FindBetterPlan(*plans, options, question);
  });
}

absl::StatusOr<RatedPlan> Replanner::Rate(const PlanSource& plans, absl::StatusOr<Plan> plan,
                                          const MeasuredCluster& cluster) {
  RUNNEL_RETURN_IF_ERROR(plan.status());
  RUNNEL_ASSIGN_OR_RETURN(const PlanRating rating, plans.Rate(*plan, cluster));
  return RatedPlan{*std::move(plan), rating};
}

// With fixed codecs: the policy's plan. With codecs that change: the policy's plan or the current
// one with refitted codecs, whichever is charged less for the rest of the run; if neither saves the
// minimal share, the current plan with codecs that lose less.
absl::StatusOr<RatedPlan> Replanner::FindBetterPlan(const PlanSource& plans,
                                                    const ReplannerOptions& options,
                                                    const Question& question) {
  const RatedPlan& now = question.now;
  const MeasuredCluster& cluster = question.cluster;
  if (!options.codecs_change)
    return Rate(plans, plans.MakePlan(question.devices, cluster), cluster);
  RatedPlan best = now;
  const auto consider = [&](absl::StatusOr<Plan> plan) {
    absl::StatusOr<RatedPlan> rated = Rate(plans, std::move(plan), cluster);
    if (!rated.ok()) return;
    const double saved =
        (best.rating.charged_seconds - rated->rating.charged_seconds) * question.micro_batches_left;
    const double more_to_move =
        MoveSeconds(options, question, rated->plan) - MoveSeconds(options, question, best.plan);
    if (saved > more_to_move) best = *std::move(rated);
  };
  consider(plans.RefitCodecs(now.plan, cluster));
  if (options.layers_move) consider(plans.MakePlan(question.devices, cluster));
  if (best.rating.charged_seconds < now.rating.charged_seconds * (1 - options.min_gain))
    return best;
  absl::StatusOr<RatedPlan> cautious = Rate(
      plans, plans.RefitCodecs(now.plan, WithBandwidthShare(cluster, kCautiousBandwidth)), cluster);
  if (cautious.ok() && LosesLess(options, now, *cautious)) return cautious;
  return best;
}

bool Replanner::LosesLess(const ReplannerOptions& options, const RatedPlan& now,
                          const RatedPlan& next) {
  return options.codecs_change && next.plan.stages == now.plan.stages &&
         next.rating.noise < now.rating.noise &&
         next.rating.charged_seconds < now.rating.charged_seconds * (1 - kWorthwhileCharge);
}

Replanner::Gain Replanner::GainOf(const Question& question, const RatedPlan& next) const {
  const RatedPlan& now = question.now;
  Gain gain;
  if (IsSamePlan(now.plan, next.plan)) return gain;
  gain.saved_seconds =
      (now.rating.charged_seconds - next.rating.charged_seconds) * question.micro_batches_left;
  gain.move_seconds = MoveSeconds(options_, question, next.plan);
  gain.is_better =
      next.rating.charged_seconds < now.rating.charged_seconds * (1 - options_.min_gain) &&
      gain.saved_seconds > gain.move_seconds;
  // The change may save no time, and takes some.
  const double seconds_left = now.rating.period_seconds * question.micro_batches_left;
  gain.loses_less = gain.move_seconds < options_.max_codecs_share * seconds_left &&
                    LosesLess(options_, now, next);
  return gain;
}

int64_t Replanner::MicroBatchesLeft(const BarrierReport& report) const {
  return (options_.stop_step - report.step) * options_.micro_batches_a_step;
}

// Rate of the path between central's host and a device on another host.
LinkRate Replanner::PathRate(const ReplannerOptions& options, const Question& question, int device,
                             bool is_up) {
  const LinkRates& rates = question.cluster.rates;
  const auto local = std::find(question.locals.begin(), question.locals.end(), true);
  if (!rates.empty() && local != question.locals.end()) {
    const auto central = static_cast<size_t>(local - question.locals.begin());
    const auto other = static_cast<size_t>(device);
    const LinkRate known = is_up ? rates[other][central].rate : rates[central][other].rate;
    if (known.is_set()) return known;
  }
  return question.slowest.is_set() ? question.slowest : options.given_rate;
}

// Layers travel through central's host, all paths at once: what takes longest is the device that
// hands over or gets the most for its path, or the medium that several share.
double Replanner::MoveSeconds(const ReplannerOptions& options, const Question& question,
                              const Plan& next) {
  std::map<int, double> seconds;  // by device; by -1 - medium
  const auto cross = [&](int device, bool is_up, int64_t bytes) {
    if (question.locals[static_cast<size_t>(device)]) return;
    const int medium = MediumOfPath(question.cluster.rates, question.locals, device, is_up);
    seconds[medium >= 0 ? -1 - medium : device] +=
        PathRate(options, question, device, is_up).Seconds(static_cast<double>(bytes));
  };
  const std::vector<StagePlan>& stages = question.now.plan.stages;
  for (const StagePlan& stage : next.stages) {
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      const auto old = std::find_if(stages.begin(), stages.end(), [layer](const StagePlan& one) {
        return one.first_layer <= layer && layer <= one.last_layer;
      });
      if (old == stages.end() || old->seats == stage.seats) continue;
      const int64_t bytes = options.layer_state_bytes[static_cast<size_t>(layer)];
      cross(old->sole_device(), /*is_up=*/true, bytes);
      cross(stage.sole_device(), /*is_up=*/false, bytes);
    }
  }
  double longest = 0;
  for (const auto& [path, one] : seconds) longest = std::max(longest, one);
  return options.fixed_move_seconds + longest;
}

}  // namespace runnel
