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

// Lists changes by what they bring.
class Helps {
 public:
  // all: the measured seconds of a micro-batch; modelled: the model's for them.
  Helps(double all, double modelled) : all_(all), modelled_(modelled) {}

  void Add(std::string what, double seconds) {
    if (seconds <= 0) return;
    // A model that is off by a factor is off for the change too.
    const double then = std::min(all_, modelled_) * (seconds / modelled_) + Unexplained();
    if (all_ - then >= kWorthSaying * all_) helps_.push_back({std::move(what), then});
  }
  std::vector<PeriodParts::Help> TakeBestFirst() {
    std::stable_sort(helps_.begin(), helps_.end(),
                     [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    return std::move(helps_);
  }

 private:
  double Unexplained() const { return std::max(0.0, all_ - modelled_); }

  double all_;
  double modelled_;
  std::vector<PeriodParts::Help> helps_;
};

// The slowest stages, links and central's host with better figures.
void AddBetterFigures(const BarrierReport& report, const PeriodComparison& comparison,
                      const MeasuredCluster& measured, const PredictPeriodFn& predict,
                      const std::vector<size_t>& slow_stages, Helps& helps) {
  const auto device = [&](size_t stage) { return report.stages[stage].plan.sole_device(); };
  for (const size_t i : slow_stages) {
    helps.Add(absl::StrCat(NameOf(report, device(i)), " twice as fast, or with half of its layers"),
              predict(WithTwiceAsFast(measured, report.stages[i].plan)));
  }
  for (const size_t i : Costliest(comparison.links.size(), [&](size_t link) {
         return SecondsPerByte(comparison.links[link].measured);
       })) {
    const int from = device(i), to = device(i + 1);
    helps.Add(
        absl::StrCat("a faster link between ", NameOf(report, from), " and ", NameOf(report, to)),
        predict(WithFreeLink(measured, from, to)));
  }
  if (measured.host_processors > 0) {
    helps.Add("a processor for each worker on central's host",
              predict(WithProcessorsForAll(measured)));
  }
}

}  // namespace

PeriodParts TakeApart(const BarrierReport& report, const PeriodComparison& comparison,
                      const MeasuredCluster& measured, const PeriodModel& model,
                      const OtherWays& others) {
  PeriodParts parts;
  const double all = comparison.measured_seconds;
  const double modelled = model.between_barriers(measured);
  const double explained = std::min(all, modelled);
  const MeasuredCluster without = WithFreeLinks(measured);
  const double without_links = std::min(explained, model.between_barriers(without));
  if (without_links <= 0) return parts;
  const std::vector<size_t> slow_stages = Costliest(
      report.stages.size(), [&](size_t i) { return comparison.stages[i].measured_seconds; });
  const size_t slowest = slow_stages.front();
  parts.slowest = NameOf(report, report.stages[slowest].plan.sole_device());
  parts.computing_seconds = std::min(without_links, comparison.stages[slowest].measured_seconds);
  const double idle = without_links - parts.computing_seconds;
  // A pipeline that drains at each step has nothing else.
  parts.bubble_seconds = report.plan.drains_each_step
                             ? idle
                             : std::clamp(without_links - model.steady(without), 0.0, idle);
  parts.schedule_seconds = idle - parts.bubble_seconds;
  parts.links_seconds = explained - without_links;
  parts.other_seconds = all - explained;
  parts.memory_seconds = others.memory_seconds * explained / modelled;

  Helps helps(all, modelled);
  AddBetterFigures(report, comparison, measured, model.between_barriers, slow_stages, helps);
  for (const OtherWay& other : others.ways) helps.Add(other.what, other.seconds);
  parts.helps = helps.TakeBestFirst();
  return parts;
}

void AddEvaluations(double standing_seconds, double beside_seconds, PeriodParts& parts) {
  if (parts.slowest.empty()) return;
  // First of what nothing explains, then of what took longer than it would alone.
  for (double* part : {&parts.other_seconds, &parts.computing_seconds}) {
    const double taken = std::min(*part, beside_seconds);
    *part -= taken;
    beside_seconds -= taken;
    parts.evaluation_seconds += taken;
  }
  parts.evaluation_seconds += standing_seconds;
  for (PeriodParts::Help& help : parts.helps) help.seconds += standing_seconds;
  const double without = parts.computing_seconds + parts.bubble_seconds + parts.schedule_seconds +
                         parts.links_seconds + parts.other_seconds;
  if (parts.evaluation_seconds < kWorthSaying * (without + parts.evaluation_seconds)) return;
  parts.helps.push_back({"fewer evaluations (--eval-every)", without});
  std::stable_sort(parts.helps.begin(), parts.helps.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
}

}  // namespace runnel
