#pragma once

// The last steps of the policy `runnel`: where the closed form is only a bound, or where the
// pipeline drains, small changes are tried by simulation.

#include <cstdint>

#include "absl/status/statusor.h"
#include "partition/policies/runnel_orders.h"

namespace runnel::policies {

// Whether the closed form says all of this placement.
bool IsExact(const PipelineModel& model, const Placement& placement);

class Polish {
 public:
  // budget: stages times micro-batches that may be simulated.
  Polish(const PipelineModel& model, int64_t max_cap, int64_t budget)
      : model_(model), max_cap_(max_cap), budget_(budget) {}

  // The charged period, by shorter simulations than SimulatedPeriod's. Infinite if the memory is
  // short.
  double Charge(const Placement& placement);
  // Moves cuts, caps by one, changes codecs, leaves a device out, takes another one or one more, as
  // long as that gains.
  Candidate Improve(Candidate candidate);

 private:
  // Takes the first change that gains.
  bool Step(Candidate& candidate);
  bool Gains(const Placement& changed, Candidate& candidate);

  const PipelineModel& model_;
  int64_t max_cap_;
  int64_t budget_;
};

// Gives every link the most exact codecs, and then every stage the least caps, with which it is
// charged `limit` at most.
absl::Status SettleCodecsAndCaps(const PipelineModel& model, double limit, Placement& placement);

}  // namespace runnel::policies
