#pragma once

// Rates one order of devices for the policy `runnel`: its best placement and the charged period.

#include <cstdint>
#include <optional>
#include <vector>

#include "partition/policies/runnel_search.h"

namespace runnel::policies {

struct Candidate {
  Placement placement;
  double charged = 0;  // ChargedPeriod, by simulation or by the closed form
};

// Micro-batches from one drain to the next, of a synchronous step or a barrier; 0: there is none.
int64_t DrainsEvery(const PipelineModel& model);

// The closed form of partition/simulator.h, or the simulation where runs between drains are short.
double EstimatedCharge(const PipelineModel& model, const Placement& placement);

// The best of one order.
class OrderRating {
 public:
  // `tables`, of one model, must outlive it.
  OrderRating(TablesByNoise& tables, int64_t max_cap);

  bool limits_memory() const { return limits_memory_; }

  // The order's best placement, to `precision` of its charged period, if that is below `bar`.
  std::optional<Candidate> Beat(const std::vector<int>& order, double bar, double precision);
  // Beat with the codecs of one of the tables.
  std::optional<Candidate> BeatWith(SearchTables& tables, const std::vector<int>& order, double bar,
                                    double precision);
  // OrderSearch::MissingBytes.
  double MissingBytes(const std::vector<int>& order);

 private:
  std::optional<Candidate> BeatDrained(OrderSearch& search, double bar);
  std::vector<int64_t> CapLimits(int64_t stages) const;
  std::optional<Candidate> ReachCharge(OrderSearch& search, double charged, double lowest_period);

  TablesByNoise& tables_;
  const PipelineModel& model_;
  int64_t max_cap_;
  bool limits_memory_ = false;  // some device does
};

}  // namespace runnel::policies
