#pragma once

// Makes plans from a run's request and measurements, and tells their cost.

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/plan_source.h"
#include "central/planning/planning_inputs.h"
#include "central/records/summary.h"
#include "partition/pipeline_model.h"

namespace runnel {

// Immutable; any thread. Errors name what does not fit and the fix: see MakePlan and PlacementOf in
// partition/plan_builder.h.
class PlanMaker final : public PlanSource {
 public:
  explicit PlanMaker(PlanningInputs inputs) : inputs_(std::move(inputs)) {}

  const PlanningInputs& inputs() const { return inputs_; }

  absl::StatusOr<Plan> MakePlan(const std::vector<int>& devices,
                                const MeasuredCluster& cluster) const override;
  absl::StatusOr<Plan> NextPlan(const Plan& held, const MeasuredCluster& cluster) const override;
  absl::StatusOr<Plan> RefitCodecs(const Plan& plan, const MeasuredCluster& cluster) const override;
  // By simulation. Needs times.
  absl::StatusOr<PlanRating> Rate(const Plan& plan, const MeasuredCluster& cluster) const override;
  absl::StatusOr<double> PeriodSeconds(const Plan& plan, const MeasuredCluster& cluster) const;
  // Seconds of a pipeline that fills and drains with this many micro-batches between two barriers.
  absl::StatusOr<double> SecondsBetweenBarriers(const Plan& plan, const MeasuredCluster& cluster,
                                                int64_t micro_batches) const;

  // The bandwidth that `plan` assumes of its links with these rates.
  PlanBandwidth AssumedBandwidth(const Plan& plan, const LinkRates& rates) const;

 private:
  // Calls `cost` with the pipeline of `plan`, which it borrows for the call.
  template <typename CostFn>
  std::invoke_result_t<CostFn, const PipelineModel&, const Placement&> CostOf(
      const Plan& plan, const MeasuredCluster& cluster, CostFn cost) const;
  std::vector<std::vector<LinkSpeed>> SpeedsBetween(const std::vector<int>& devices,
                                                    const LinkRates& rates) const;
  absl::StatusOr<PlanRequest> RequestFor(const std::vector<int>& devices,
                                         const MeasuredCluster& cluster) const;
  // A plan without a check of memory, unless the policy makes one.
  absl::StatusOr<Plan> AnyPlanFor(PlanRequest request, const std::vector<int>& devices,
                                  const MeasuredCluster& cluster) const;
  // A plan, refused if a stage does not fit into its worker's memory.
  absl::StatusOr<Plan> FittingPlanFor(const PlanRequest& request, const std::vector<int>& devices,
                                      const MeasuredCluster& cluster) const;
  // Of one way to keep activations: the fastest plan, and the fastest one with room for copies of the
  // neighbours' states, which may be the same; none: none has that room, or nothing is copied.
  struct Candidates {
    Plan lean;
    std::optional<Plan> roomy;
  };
  absl::StatusOr<Candidates> CandidatesFor(PlanRequest request, const std::vector<int>& devices,
                                           const MeasuredCluster& cluster) const;
  // Whether copies of neighbours' states need room in it.
  bool WantsCopies(const Plan& plan, const MeasuredCluster& cluster) const;
  // Plans whose stages make their layers again in the backward where they, or copies of the
  // neighbours' states beside them, would not fit.
  absl::StatusOr<Candidates> RecomputingCandidatesFor(PlanRequest request,
                                                      const std::vector<int>& devices,
                                                      const MeasuredCluster& cluster) const;
  // The plan with room for copies, unless it is much slower than the one without.
  absl::StatusOr<Plan> Choose(const Candidates& plans, const MeasuredCluster& cluster) const;
  // Takes those of `again`, which make layers again, where they gain what that must: the lean plan
  // over the other one, the roomy one over what would be chosen without recompute.
  absl::Status TakeFaster(Candidates again, const MeasuredCluster& cluster,
                          Candidates& plans) const;
  // The best of all candidates: one with room for copies, unless it is much slower than the best one
  // without.
  absl::StatusOr<Plan> MakePlanFor(PlanRequest request, const std::vector<int>& devices,
                                   const MeasuredCluster& cluster) const;

  PlanningInputs inputs_;
};

// A line for people: "links taken for 4.02 Mbps down and 3.98 Mbps up after 5 ms (measured)"; empty
// without links.
std::string BandwidthText(const PlanBandwidth& bandwidth);

}  // namespace runnel
