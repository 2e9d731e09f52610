#pragma once

// The plans that a replanner chooses from, and their costs.

#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/live/plan_search.h"
#include "central/planning/measured/measured_cluster.h"
#include "proto/base/plan/plan.h"

namespace runnel {

// Pure functions of their arguments. Plans have no generation yet.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  // The policy's plan for these devices, by number and in pipeline order.
  virtual absl::StatusOr<Plan> MakePlan(const std::vector<int>& devices,
                                        const MeasuredCluster& cluster) const = 0;
  // The policy's plan after `held`, on the same devices. For policies with PolicyRow::next.
  virtual absl::StatusOr<Plan> NextPlan(const Plan& held, const MeasuredCluster& cluster) const = 0;
  // `plan` with the codecs that its links have time for.
  virtual absl::StatusOr<Plan> RefitCodecs(const Plan& plan,
                                           const MeasuredCluster& cluster) const = 0;
  virtual absl::StatusOr<PlanRating> Rate(const Plan& plan,
                                          const MeasuredCluster& cluster) const = 0;
};

}  // namespace runnel
