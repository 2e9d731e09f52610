#include "partition/policies/runnel_rating.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace runnel::policies {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Stages times micro-batches of a run between drains that is simulated at once.
constexpr int64_t kSimulatedAtOnce = 128;
// Runs shorter than this are mostly filling and draining.
constexpr int64_t kShortRun = 16;
// Longer periods that are tried where pipelines drain now and then.
constexpr int kLongerPeriods = 5;
constexpr double kLonger = 1.2;

// Charge over period.
double ChargeFactor(const PipelineModel& model, int stages, int64_t cap) {
  Placement placement;
  placement.order.resize(stages);
  placement.caps = {cap};
  return ChargedPeriod(model, placement, 1);
}

// Round trip of one micro-batch alone.
double RoundTripNs(const SimulatedPipeline& pipeline) {
  int64_t ns = pipeline.stages[0].weight_gradient_ns;
  for (const StageTimes& stage : pipeline.stages) ns += stage.forward_ns + stage.input_gradient_ns;
  for (const LinkTimes& link : pipeline.links) ns += link.down.total_ns() + link.up.total_ns();
  return static_cast<double>(ns);
}

// The least caps with which the closed form reaches `period_ns` (runnel_search.h).
std::vector<int64_t> LeastCaps(const SimulatedPipeline& pipeline, double period_ns) {
  const size_t stages = pipeline.stages.size();
  std::vector<int64_t> caps(stages, 1);
  for (size_t i = stages; i-- > 0;) {
    double path = 0;
    for (size_t j = i; j < stages; ++j) {
      const StageTimes& times = pipeline.stages[j];
      path += static_cast<double>(times.forward_ns + times.input_gradient_ns);
      const double round = path + static_cast<double>(pipeline.stages[i].weight_gradient_ns);
      const auto needed = static_cast<int64_t>(std::ceil(round / period_ns - 1e-9));
      if (j > i) caps[i] = std::max({caps[i], caps[j], caps[j] - 1 + needed});
      if (j + 1 < stages) {
        path += static_cast<double>(pipeline.links[j].down.total_ns() +
                                    pipeline.links[j].up.total_ns());
      }
    }
  }
  return caps;
}

// Caps that runs between drains may do well with, none above the placement's own.
std::vector<Placement> WithUsualCaps(const PipelineModel& model, const Placement& placement) {
  const auto stages = static_cast<int64_t>(placement.order.size());
  std::vector<std::vector<int64_t>> usual(2);
  for (int64_t i = 0; i < stages; ++i) {
    usual[0].push_back(stages - i);
    usual[1].push_back(std::max<int64_t>(1, placement.caps[0] - i));
  }
  const SimulatedPipeline pipeline = ToPipeline(model, placement);
  usual.push_back(LeastCaps(pipeline, std::max(1.0, ResourceBoundNs(pipeline))));
  std::vector<Placement> placements;
  for (const std::vector<int64_t>& caps : usual) {
    Placement one = placement;
    for (int64_t i = 0; i < stages; ++i) one.caps[i] = std::min(one.caps[i], caps[i]);
    if (FitsMemory(model, one)) placements.push_back(std::move(one));
  }
  return placements;
}

}  // namespace

int64_t DrainsEvery(const PipelineModel& model) {
  return model.drain_every > 0 ? model.drain_every : model.barrier_every;
}

double EstimatedCharge(const PipelineModel& model, const Placement& placement) {
  const int64_t every = DrainsEvery(model);
  const auto stages = static_cast<int64_t>(placement.order.size());
  if (every > 0 && every * stages <= kSimulatedAtOnce) {
    return ChargedPeriod(model, placement, SimulatedPeriod(model, placement).value_or(kInfinity));
  }
  const SimulatedPipeline pipeline = ToPipeline(model, placement);
  double period = BoundNs(pipeline) * 1e-9;
  if (every > 0) {
    const auto count = static_cast<double>(every);
    const double pause = model.barrier_every > 0 ? model.barrier_pause_seconds /
                                                       static_cast<double>(model.barrier_every)
                                                 : 0;
    period = (RoundTripNs(pipeline) * 1e-9 + (count - 1) * period) / count + pause;
  }
  return ChargedPeriod(model, placement, period);
}

OrderRating::OrderRating(TablesByNoise& tables, int64_t max_cap)
    : tables_(tables), model_(tables.front().model()), max_cap_(max_cap) {
  for (const DeviceCost& device : model_.devices) {
    limits_memory_ |= device.memory_limit_bytes > 0;
  }
}

double OrderRating::MissingBytes(const std::vector<int>& order) {
  return OrderSearch(tables_.front(), order).MissingBytes();
}

// Finds the least caps that reach the period which `charged` leaves with them: each more shortens
// that period.
std::optional<Candidate> OrderRating::ReachCharge(OrderSearch& search, double charged,
                                                  double lowest_period) {
  for (int64_t cap = 1; cap <= max_cap_;) {
    const double period = charged / ChargeFactor(model_, search.stages(), cap);
    if (period < lowest_period) return std::nullopt;
    std::optional<Placement> placement = search.Reach(period, max_cap_);
    if (!placement.has_value() && model_.deferred != nullptr && limits_memory_) {
      placement = search.Reach(period, cap);
      if (!placement.has_value()) placement = search.Reach(period, 1);
    }
    if (!placement.has_value()) return std::nullopt;
    const int64_t needed = placement->caps[0];
    if (needed <= cap || model_.drain_every > 0) {
      const double estimated = EstimatedCharge(model_, *placement);
      return Candidate{*std::move(placement), estimated};
    }
    cap = needed;
  }
  return std::nullopt;
}

std::optional<Candidate> OrderRating::BeatDrained(OrderSearch& search, double bar) {
  const int64_t every = DrainsEvery(model_);
  std::optional<Candidate> best;
  for (const int64_t cap : CapLimits(search.stages())) {
    const std::optional<Placement> soonest = search.SoonestDrained(every, cap);
    if (!soonest.has_value()) continue;
    for (Placement& placement : WithUsualCaps(model_, *soonest)) {
      const double charged = EstimatedCharge(model_, placement);
      if (charged < bar && (!best.has_value() || charged < best->charged)) {
        best = {std::move(placement), charged};
      }
    }
  }
  return best;
}

// Candidates for stage 0's cap. In a synchronous step a cap costs only memory; deferred
// weight-gradients take more of it the higher the cap is.
std::vector<int64_t> OrderRating::CapLimits(int64_t stages) const {
  if (model_.drain_every > 0 && model_.deferred == nullptr) return {max_cap_};
  std::vector<int64_t> limits = {max_cap_};
  for (const int64_t limit : {2 * stages, stages, int64_t{1}}) {
    const bool is_useful = limit > 1 || (limits_memory_ && model_.deferred != nullptr);
    if (limit < limits.back() && is_useful) limits.push_back(limit);
  }
  return limits;
}

std::optional<Candidate> OrderRating::Beat(const std::vector<int>& order, double bar,
                                           double precision) {
  std::optional<Candidate> best;
  for (SearchTables& tables : tables_) {
    std::optional<Candidate> one =
        BeatWith(tables, order, best.has_value() ? best->charged : bar, precision);
    if (one.has_value()) best = std::move(one);
  }
  return best;
}

std::optional<Candidate> OrderRating::BeatWith(SearchTables& tables, const std::vector<int>& order,
                                               double bar, double precision) {
  OrderSearch search(tables, order);
  const double lowest_period = search.LowestPeriod();
  double low = lowest_period * ChargeFactor(model_, search.stages(), 1);
  if (low >= bar) return std::nullopt;
  const int64_t every = DrainsEvery(model_);
  if (every > 0 && every < kShortRun) return BeatDrained(search, bar);
  std::optional<Candidate> best = ReachCharge(search, bar, lowest_period);
  if (!best.has_value()) return std::nullopt;
  const auto reach = [&](double charged) {
    std::optional<Candidate> found = ReachCharge(search, charged, lowest_period);
    const bool is_reached = found.has_value();
    if (is_reached && found->charged < best->charged) best = std::move(found);
    return is_reached;
  };
  double high = std::min(bar, best->charged);
  while (high - low > precision * high) {
    const double middle = low > 0 ? std::sqrt(low * high) : high / 2;
    (reach(middle) ? high : low) = middle;
  }
  if (every > 0) {
    // A longer period may have a shorter way to fill.
    for (int i = 0; i < kLongerPeriods; ++i) reach(high *= kLonger);
  }
  if (best->charged >= bar) return std::nullopt;
  return best;
}

}  // namespace runnel::policies
