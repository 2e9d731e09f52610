#include "central/planning/live/period_parts.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Each change is a simulation on central's loop, so that only the slowest stages and links are
// changed.
constexpr size_t kMostChanges = 4;
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

MeasuredCluster WithProcessorsForAll(MeasuredCluster cluster) {
  cluster.host_processors = static_cast<double>(cluster.times.size());
  return cluster;
}

// The first kMostChanges of these numbers, those with the largest `cost` first.
template <typename CostFn>
std::vector<size_t> Costliest(size_t count, CostFn cost) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cost(a) > cost(b); });
  order.resize(std::min(count, kMostChanges));
  return order;
}

// Seconds a byte on the slower way; 0: no limit is known.
double SecondsPerByte(const PlanBandwidth::Link& link) {
  return std::max(link.forward.Seconds(1), link.backward.Seconds(1));
}

}  // namespace

PeriodParts TakeApart(const BarrierReport& report, const PeriodComparison& comparison,
                      const MeasuredCluster& measured, const PredictPeriodFn& predict,
                      const std::vector<OtherWay>& others) {
  PeriodParts parts;
  const double all = comparison.measured_seconds;
  const double explained = std::min(all, predict(measured));
  const double without_links = std::min(explained, predict(WithFreeLinks(measured)));
  if (without_links <= 0) return parts;
  const std::vector<size_t> slow_stages = Costliest(
      report.stages.size(), [&](size_t i) { return comparison.stages[i].measured_seconds; });
  const auto device = [&](size_t stage) { return report.stages[stage].plan.sole_device(); };
  parts.slowest = NameOf(report, device(slow_stages.front()));
  parts.computing_seconds =
      std::min(without_links, comparison.stages[slow_stages.front()].measured_seconds);
  parts.schedule_seconds = without_links - parts.computing_seconds;
  parts.links_seconds = explained - without_links;
  parts.other_seconds = all - explained;

  const auto add = [&](std::string what, double seconds) {
    const double saved = explained - seconds;
    if (seconds > 0 && saved >= kWorthSaying * all)
      parts.helps.push_back({std::move(what), all - saved});
  };
  const auto consider = [&](std::string what, const MeasuredCluster& changed) {
    add(std::move(what), predict(changed));
  };
  for (const size_t i : slow_stages) {
    consider(absl::StrCat(NameOf(report, device(i)), " twice as fast, or with half of its layers"),
             WithTwiceAsFast(measured, report.stages[i].plan));
  }
  for (const size_t i : Costliest(comparison.links.size(), [&](size_t link) {
         return SecondsPerByte(comparison.links[link].measured);
       })) {
    const int from = device(i), to = device(i + 1);
    consider(
        absl::StrCat("a faster link between ", NameOf(report, from), " and ", NameOf(report, to)),
        WithFreeLink(measured, from, to));
  }
  if (measured.host_processors > 0)
    consider("a processor for each worker on central's host", WithProcessorsForAll(measured));
  for (const OtherWay& other : others) add(other.what, other.seconds);
  std::stable_sort(parts.helps.begin(), parts.helps.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return parts;
}

}  // namespace runnel
