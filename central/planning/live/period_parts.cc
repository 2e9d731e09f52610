#include "central/planning/live/period_parts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// A link that holds nobody up.
constexpr WayFigures kFree = {LinkRate::Mbps(1e6), 0};

std::string NameOf(const BarrierReport& report, int device) {
  const std::string& name = report.devices[static_cast<size_t>(device)].name;
  return name.empty() ? absl::StrCat("device ", device) : name;
}

MeasuredCluster WithFreeLinks(MeasuredCluster cluster) {
  const size_t devices = cluster.times.size();
  cluster.rates.assign(devices, std::vector<WayFigures>(devices, kFree));
  return cluster;
}

MeasuredCluster WithFreeLink(MeasuredCluster cluster, int from, int to) {
  const size_t devices = cluster.times.size();
  if (cluster.rates.empty()) cluster.rates.assign(devices, std::vector<WayFigures>(devices));
  cluster.rates[static_cast<size_t>(from)][static_cast<size_t>(to)] = kFree;
  cluster.rates[static_cast<size_t>(to)][static_cast<size_t>(from)] = kFree;
  return cluster;
}

MeasuredCluster WithTwiceAsFast(MeasuredCluster cluster, const StagePlan& stage) {
  DeviceTimes& times = OfSoleDevice(stage, cluster.times);
  times = times.Scaled(0.5);
  return cluster;
}

}  // namespace

PeriodParts TakeApart(const BarrierReport& report, const PeriodComparison& comparison,
                      const MeasuredCluster& measured, const PredictPeriodFn& predict) {
  PeriodParts parts;
  const double all = comparison.measured_seconds;
  const double explained = std::min(all, predict(measured));
  if (explained <= 0) return parts;
  size_t slowest = 0;
  for (size_t i = 0; i < comparison.stages.size(); ++i) {
    if (comparison.stages[i].measured_seconds > comparison.stages[slowest].measured_seconds)
      slowest = i;
  }
  const double without_links = std::min(explained, predict(WithFreeLinks(measured)));
  parts.slowest = NameOf(report, report.stages[slowest].plan.sole_device());
  parts.computing_seconds = std::min(without_links, comparison.stages[slowest].measured_seconds);
  parts.schedule_seconds = without_links - parts.computing_seconds;
  parts.links_seconds = explained - without_links;
  parts.other_seconds = all - explained;

  const auto consider = [&](std::string what, const MeasuredCluster& changed) {
    const double seconds = predict(changed);
    const double saved = explained - seconds;
    if (seconds > 0 && saved >= kWorthSaying * all)
      parts.helps.push_back({std::move(what), all - saved});
  };
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const StagePlan& stage = report.stages[i].plan;
    const std::string name = NameOf(report, stage.sole_device());
    consider(absl::StrCat(name, " twice as fast, or with half of its layers"),
             WithTwiceAsFast(measured, stage));
    if (i + 1 == report.stages.size()) break;
    const int next = report.stages[i + 1].plan.sole_device();
    consider(absl::StrCat("a faster link between ", name, " and ", NameOf(report, next)),
             WithFreeLink(measured, stage.sole_device(), next));
  }
  std::stable_sort(parts.helps.begin(), parts.helps.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return parts;
}

}  // namespace runnel
