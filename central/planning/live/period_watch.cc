#include "central/planning/live/period_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/planning/live/period_parts.h"

namespace runnel {
namespace {

// Neither a stage's computation nor a link's rate explains it: nothing that anybody could act on.
constexpr size_t kUnexplained = 1;

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
  const std::optional<std::vector<StagePace::Figures>> figures = StageFigures(report);
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
  comparison_.parts =
      TakeApart(report, comparison_, AsMeasured(report, made_from, rates),
                [&](const MeasuredCluster& cluster) { return Predict(report.plan, cluster); });
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
    const BarrierReport& report) {
  if (report.plan.generation != generation_ || paces_.size() != report.stages.size()) {
    generation_ = report.plan.generation;
    paces_.assign(report.stages.size(), StagePace(report.first_sequence.value()));
    said_ = 0;
  }
  std::vector<StagePace::Figures> figures;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const DeviceFacts& device = OfSoleDevice(report.stages[i].plan, report.devices);
    const std::optional<StagePace::Figures> one =
        paces_[i].Report(report.stages[i].telemetry, device.processor_share, kLeastMicroBatches);
    if (one.has_value()) figures.push_back(*one);
  }
  if (figures.empty() || figures.size() < report.stages.size()) return std::nullopt;
  return figures;
}

double PeriodWatch::Predict(const Plan& plan, const MeasuredCluster& cluster) const {
  return maker_->SecondsBetweenBarriers(plan, cluster, micro_batches_).value_or(0);
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
