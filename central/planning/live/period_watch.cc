#include "central/planning/live/period_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "partition/policy.h"

namespace runnel {
namespace {

// Neither a stage's computation nor a link's rate explains it: nothing that anybody could act on.
constexpr size_t kUnexplained = 1;

// A search on central's loop: of few stages only, where it takes no time to speak of.
constexpr size_t kMostSearchedStages = 4;

bool IsSameCut(const Plan& a, const Plan& b) {
  return std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const StagePlan& one, const StagePlan& other) {
                      return one.seats == other.seats && one.last_layer == other.last_layer;
                    });
}

std::string MbpsText(LinkRate rate) {
  return rate.is_set() ? absl::StrFormat("%.3g Mbps", rate.mbps()) : std::string("full speed");
}

// `cluster` with the stage's measured time.
MeasuredCluster WithStage(MeasuredCluster cluster, const StagePlan& stage,
                          const PeriodComparison::Stage& figures) {
  DeviceTimes& times = OfSoleDevice(stage, cluster.times);
  if (figures.predicted_seconds > 0)
    times = times.Scaled(figures.measured_seconds / figures.predicted_seconds);
  return cluster;
}

// `cluster` with the measured rate of the link between two devices.
MeasuredCluster WithLink(MeasuredCluster cluster, const LinkRates& rates, int from, int to) {
  if (rates.empty()) return cluster;
  if (cluster.rates.empty())
    cluster.rates.assign(rates.size(), std::vector<WayFigures>(rates.size()));
  cluster.rates[from][to] = rates[from][to];
  cluster.rates[to][from] = rates[to][from];
  return cluster;
}

std::string ComputationText(size_t stage, const PeriodComparison::Stage& figures) {
  return absl::StrFormat("stage %d computes %.3g s, predicted %.3g", stage,
                         figures.measured_seconds, figures.predicted_seconds);
}

std::string LinkText(size_t link, const PeriodComparison::Link& figures) {
  return absl::StrFormat(
      "the link from stage %d to stage %d carries %s down and %s up after %.3g ms, predicted %s, "
      "%s "
      "and %.3g ms",
      link, link + 1, MbpsText(figures.measured.forward), MbpsText(figures.measured.backward),
      figures.measured.delay_seconds * 1e3, MbpsText(figures.predicted.forward),
      MbpsText(figures.predicted.backward), figures.predicted.delay_seconds * 1e3);
}

}  // namespace

void PeriodWatch::Report(const BarrierReport& report, const MeasuredCluster& made_from,
                         const LinkRates& rates) {
  if (made_from.times.empty()) return;
  const std::optional<std::vector<StagePace::Figures>> figures = StageFigures(report, made_from);
  if (!figures.has_value()) return;
  micro_batches_ = figures->front().micro_batches;
  comparison_ = {.step = report.step};
  for (size_t i = 0; i < figures->size(); ++i) {
    const StagePlan& stage = report.stages[i].plan;
    comparison_.measured_seconds =
        std::max(comparison_.measured_seconds, (*figures)[i].all_seconds);
    comparison_.stages.push_back(
        {(*figures)[i].busy_seconds,
         OfSoleDevice(stage, made_from.times).Seconds({stage.first_layer, stage.last_layer})});
  }
  const std::vector<PlanBandwidth::Link> before =
      maker_->AssumedBandwidth(report.plan, made_from.rates).links;
  const std::vector<PlanBandwidth::Link> now = maker_->AssumedBandwidth(report.plan, rates).links;
  for (size_t i = 0; i < now.size(); ++i) comparison_.links.push_back({now[i], before[i]});
  comparison_.predicted_seconds = Predict(report.plan, made_from);
  if (comparison_.predicted_seconds <= 0) return;
  const double off = comparison_.measured_seconds / comparison_.predicted_seconds - 1;
  Cause cause = std::abs(off) > kAlike ? FindCause(report, made_from, rates) : Cause();
  comparison_.cause = std::move(cause.text);
  const MeasuredCluster as_measured = AsMeasured(report, made_from, rates);
  const PeriodModel model = {
      [&](const MeasuredCluster& cluster) { return Predict(report.plan, cluster); },
      [&](const MeasuredCluster& cluster) {
        return maker_->PeriodSeconds(report.plan, cluster).value_or(0);
      }};
  comparison_.parts =
      TakeApart(report, comparison_, as_measured, model,
                FindOtherWays(report, as_measured, model.between_barriers(as_measured)));
  // One cause is reported once, whatever its figures are at later reports.
  if (std::exchange(said_, cause.term) == cause.term || cause.term == 0) return;
  // Nobody can do anything about a run that is faster than its prediction, nor about a cause that is
  // not found.
  if (off < 0 || cause.term == kUnexplained) return;
  remark_ = absl::StrFormat("step %d: %.3g s a micro-batch, predicted %.3g (%+.0f %%): %s",
                            report.step, comparison_.measured_seconds,
                            comparison_.predicted_seconds, off * 100, comparison_.cause);
}

std::string PeriodWatch::TakeRemark() { return std::exchange(remark_, ""); }

std::optional<std::vector<StagePace::Figures>> PeriodWatch::StageFigures(
    const BarrierReport& report, const MeasuredCluster& made_from) {
  if (report.plan.generation != generation_ || paces_.size() != report.stages.size()) {
    generation_ = report.plan.generation;
    paces_.assign(report.stages.size(), StagePace(report.first_sequence.value()));
    searched_ = {};
    said_ = 0;
  }
  const std::vector<int> computing = report.plan.sole_devices();
  std::vector<StagePace::Figures> figures;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const DeviceFacts& device = OfSoleDevice(report.stages[i].plan, report.devices);
    const std::optional<StagePace::Figures> one = paces_[i].Report(
        report.stages[i].telemetry, device.processor_share,
        made_from.SpeedAmong(computing, report.stages[i].plan.sole_device()), kLeastMicroBatches);
    if (one.has_value()) figures.push_back(*one);
  }
  if (figures.empty() || figures.size() < report.stages.size()) return std::nullopt;
  return figures;
}

double PeriodWatch::Predict(const Plan& plan, const MeasuredCluster& cluster) const {
  return maker_->SecondsBetweenBarriers(plan, cluster, micro_batches_).value_or(0);
}

OtherWays PeriodWatch::FindOtherWays(const BarrierReport& report, const MeasuredCluster& measured,
                                     double now_seconds) {
  if (now_seconds <= 0) return {};
  if (searched_.now_seconds == 0)
    searched_ = {now_seconds, SearchOtherWays(report, measured, now_seconds)};
  OtherWays ways = searched_.found;
  const double scale = now_seconds / searched_.now_seconds;
  for (OtherWay& way : ways.ways) way.seconds *= scale;
  ways.memory_seconds *= scale;
  return ways;
}

OtherWays PeriodWatch::SearchOtherWays(const BarrierReport& report, const MeasuredCluster& measured,
                                       double now_seconds) const {
  OtherWays found;
  if (const auto more = MoreMicroBatches(report, measured)) found.ways.push_back(*more);
  if (report.stages.size() > kMostSearchedStages) return found;
  std::optional<OtherWay> cut = OtherCut(report, measured, /*has_memory=*/false);
  std::optional<OtherWay> room;
  const bool is_limited =
      std::any_of(measured.memory.begin(), measured.memory.end(),
                  [](const DeviceMemory& device) { return device.may_take_bytes > 0; });
  if (is_limited) room = OtherCut(report, measured, /*has_memory=*/true);
  const double best_seconds =
      cut && cut->seconds > 0 ? std::min(cut->seconds, now_seconds) : now_seconds;
  if (room && room->seconds > 0) found.memory_seconds = std::max(0.0, best_seconds - room->seconds);
  // What another cut alone brings needs no memory.
  if (room && cut && room->seconds > (1 - kWorthSaying) * cut->seconds) room.reset();
  for (const std::optional<OtherWay>& way : {cut, room}) {
    if (way.has_value()) found.ways.push_back(*way);
  }
  return found;
}

// By the policy that looks for the fastest plan, on the plan's own devices; with memory also on those
// that got no stage, maybe for want of it.
std::optional<OtherWay> PeriodWatch::OtherCut(const BarrierReport& report,
                                              const MeasuredCluster& measured,
                                              bool has_memory) const {
  const absl::StatusOr<const PolicyRow*> policy = FindPolicy("runnel");
  if (!policy.ok()) return std::nullopt;
  PlanningInputs inputs = maker_->inputs();
  inputs.policy = *policy;
  inputs.caps.clear();
  MeasuredCluster cluster = measured;
  if (has_memory) cluster.memory.clear();
  const PlanMaker maker(std::move(inputs));
  std::vector<int> devices = report.plan.sole_devices();
  for (size_t i = 0; has_memory && i < std::min(report.devices.size(), cluster.times.size()); ++i) {
    const auto device = static_cast<int>(i);
    if (report.devices[i].is_lost || cluster.times[i].empty() || report.plan.Uses(device)) continue;
    devices.push_back(device);
  }
  const absl::StatusOr<Plan> plan = maker.MakePlan(devices, cluster);
  if (!plan.ok() || IsSameCut(*plan, report.plan)) return std::nullopt;
  const std::string stages =
      absl::StrJoin(plan->stages, ", ", [&](std::string* out, const StagePlan& stage) {
        absl::StrAppend(out, OfSoleDevice(stage, report.devices).name, " ", stage.first_layer,
                        " to ", stage.last_layer);
      });
  const bool moves = maker_->inputs().replan.layers_move;
  return OtherWay{absl::StrCat(has_memory ? "more memory, for other layers (" : "other layers (",
                               stages, ")", moves || has_memory ? "" : ": --policy runnel"),
                  maker.SecondsBetweenBarriers(*plan, cluster, micro_batches_).value_or(0)};
}

// A layer is taken to need half of its time for half of the samples: small ones need more.
std::optional<OtherWay> PeriodWatch::MoreMicroBatches(const BarrierReport& report,
                                                      const MeasuredCluster& measured) const {
  PlanningInputs inputs = maker_->inputs();
  if (!report.plan.drains_each_step || report.plan.stages.size() < 2 ||
      inputs.micro_batch_size < 2) {
    return std::nullopt;
  }
  inputs.micro_batches *= 2;
  inputs.micro_batch_size = (inputs.micro_batch_size + 1) / 2;
  std::string what = absl::StrCat("--micro-batches ", inputs.micro_batches);
  MeasuredCluster cluster = measured;
  for (DeviceTimes& times : cluster.times) times = times.Scaled(0.5);
  // Coding does not get faster by that.
  for (double& sum : cluster.profiled_sums) sum *= 0.5;
  Plan plan = report.plan;
  // As many as flow through the stages are under way, unless the user said otherwise.
  if (inputs.caps.empty()) {
    const std::vector<int64_t> caps =
        inputs.schedule->caps(static_cast<int>(plan.stages.size()), inputs.micro_batches);
    for (size_t i = 0; i < caps.size(); ++i)
      plan.stages[i].cap = std::max<int64_t>(plan.stages[i].cap, caps[i]);
  }
  const PlanMaker maker(std::move(inputs));
  return OtherWay{std::move(what),
                  2 * maker.SecondsBetweenBarriers(plan, cluster, 2 * micro_batches_).value_or(0)};
}

// Puts each measured figure alone in place of the predicted one: which one brings the prediction
// nearest to the measured period? If all together leave more than they explain, none of them is the
// cause.
PeriodWatch::Cause PeriodWatch::FindCause(const BarrierReport& report,
                                          const MeasuredCluster& made_from,
                                          const LinkRates& rates) const {
  const double measured = comparison_.measured_seconds;
  const auto distance = [&](const MeasuredCluster& cluster) {
    return std::abs(measured - Predict(report.plan, cluster));
  };
  double nearest = std::abs(measured - comparison_.predicted_seconds);
  const double unexplained = nearest;
  Cause cause = {kUnexplained, ""};
  const auto consider = [&](size_t term, const MeasuredCluster& cluster, std::string text) {
    const double one = distance(cluster);
    if (one >= nearest) return;
    nearest = one;
    cause = {term, std::move(text)};
  };
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const StagePlan& stage = report.stages[i].plan;
    consider(2 + 2 * i, WithStage(made_from, stage, comparison_.stages[i]),
             ComputationText(i, comparison_.stages[i]));
    if (i + 1 == report.stages.size()) break;
    const int from = stage.sole_device(), to = report.stages[i + 1].plan.sole_device();
    consider(3 + 2 * i, WithLink(made_from, rates, from, to), LinkText(i, comparison_.links[i]));
  }
  return distance(AsMeasured(report, made_from, rates)) > unexplained / 2 ? Cause{kUnexplained, ""}
                                                                          : cause;
}

MeasuredCluster PeriodWatch::AsMeasured(const BarrierReport& report,
                                        const MeasuredCluster& made_from,
                                        const LinkRates& rates) const {
  MeasuredCluster all = made_from;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const StagePlan& stage = report.stages[i].plan;
    all = WithStage(std::move(all), stage, comparison_.stages[i]);
    if (i + 1 == report.stages.size()) break;
    all = WithLink(std::move(all), rates, stage.sole_device(),
                   report.stages[i + 1].plan.sole_device());
  }
  return all;
}

}  // namespace runnel
