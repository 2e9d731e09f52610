#pragma once

// The planner of a run whose plans its policy makes. It owns what plans are made from: the inputs,
// what was measured of devices and links, the latency predictor, the replanner.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/plan_maker.h"
#include "central/planning/planner.h"
#include "central/planning/replanner.h"
#include "predictor/run/run_predictor.h"

namespace runnel {

class RunPlanner final : public Planner {
 public:
  // Errors as MakeRunPredictor.
  static absl::StatusOr<std::unique_ptr<RunPlanner>> Create(PlanningInputs inputs);

  const PlanningInputs& inputs() const { return maker_.inputs(); }
  // What the user should know before the run begins; empty: nothing.
  std::string Warning() const;

  ProfileNeeds profile_needs() const override;
  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>& devices,
                                 const std::vector<DeviceTimes>& times) override;
  BarrierDecision AtBarrier(const BarrierReport& report) override;
  absl::StatusOr<DeviceTimes> Characterise(int device, const std::vector<double>& seconds) override;
  PlanBandwidth AssumedBandwidth(const Plan& plan) const override;
  std::string Explanation() const override;
  double predicted_samples_per_s() const override { return predicted_samples_per_s_; }

 private:
  explicit RunPlanner(PlanningInputs inputs) : maker_(std::move(inputs)) {}

  PlanMaker maker_;
  std::optional<RunPredictor> predictor_;  // --cost predicted
  std::optional<Replanner> replanner_;     // none: the first plan holds to the end
  // The processor shares and sums of the first profile, the link rates as of the last barrier.
  MeasuredCluster cluster_;
  std::optional<int64_t> measured_step_;  // last barrier at which devices were looked at
  double predicted_samples_per_s_ = 0;
  std::vector<std::string> unused_;  // devices that the first plan leaves out
  double even_samples_per_s_ = 0;    // of the even cut and uncompressed tensors; 0: not known
};

}  // namespace runnel
