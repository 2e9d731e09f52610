#pragma once

// The planner of a run whose policy makes plans. It owns the plans' inputs: settings, measurements
// of devices and links, the latency predictor, the replanner.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/live/first_links.h"
#include "central/planning/live/period_watch.h"
#include "central/planning/live/plan_members.h"
#include "central/planning/live/plan_search.h"
#include "central/planning/plan_maker.h"
#include "central/planning/planner.h"
#include "central/planning/replanner.h"
#include "predictor/run/run_predictor.h"

namespace runnel {

class RunPlanner final : public Planner {
 public:
  // Errors as MakeRunPredictor.
  static absl::StatusOr<std::unique_ptr<RunPlanner>> Create(
      PlanningInputs inputs, std::unique_ptr<PlanSearch> search = MakeBackgroundSearch());

  const PlanningInputs& inputs() const { return maker_.inputs(); }
  // Figures of links at the first plan.
  const LinkRates& first_rates() const { return links_.rates(); }
  // A warning to the user before the run begins; empty: none.
  std::string Warning() const;

  ProfileNeeds profile_needs() const override;
  bool ProbesPath(const std::vector<DeviceFacts>& devices, int device) const override;
  std::optional<LinksKnown> KnownLinks() const override { return links_.Known(); }
  absl::Status OrderReplan() override;
  std::string TakeRemark() override {
    return remark_.empty() ? watch_.TakeRemark() : std::exchange(remark_, "");
  }
  PeriodComparison period() const override { return watch_.comparison(); }
  PlanSearches searches() const override {
    return replanner_.has_value() ? replanner_->searches() : PlanSearches();
  }
  absl::StatusOr<LateAnswer> WhatIf(const std::string& assumption,
                                    const PlanDecided& decided) const override;
  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>& devices,
                                 const std::vector<DeviceTimes>& times) override;
  BarrierDecision AtBarrier(const BarrierReport& report) override;
  absl::StatusOr<Plan> PlanForSurvivors(const BarrierReport& report) override;
  absl::StatusOr<DeviceTimes> Characterise(int device, const std::vector<double>& seconds) override;
  void SetNoise(const NoiseMeasured& noise) override;
  PlanBandwidth AssumedBandwidth(const Plan& plan) const override;
  std::string Explanation() const override;
  double predicted_samples_per_s() const override { return forecast_.samples_per_s; }

 private:
  explicit RunPlanner(PlanningInputs inputs) : maker_(std::move(inputs)), watch_(&maker_) {
    cluster_.link_bits = this->inputs().codecs.first_bits;
  }
  // The first plan's promise, for people.
  struct Forecast {
    double samples_per_s = 0;              // 0: not known
    double even_samples_per_s = 0;         // even cut and uncompressed tensors; 0: not known
    std::string noise = {};                // NoiseText; empty: nothing is lost
    double staleness = 0;                  // PlanRating's
    std::vector<std::string> unused = {};  // devices that it leaves out
  };
  // A candidate plan, adopted only if re-measuring the idle paths and devices that it would use
  // confirms the estimate.
  struct UnprovenChange {
    ChangePlan change;
    MeasureDevices measure;
  };

  // Errors of --links.
  absl::Status SetFirstRates(const std::vector<DeviceFacts>& devices);
  void Compare(const BarrierReport& report);
  // Devices whose path `next` would use and no link of the plan that holds does.
  std::vector<int> IdlePaths(const BarrierReport& report, const Plan& next) const;
  // `report` with those that nothing is known of as lost.
  BarrierReport UsableOf(BarrierReport report) const;
  // Makes room for devices that are new, and looks at those that plans may use since now.
  void FollowMembers(const BarrierReport& usable);
  BarrierDecision PlanForMembers(const BarrierReport& usable);
  // Bits of codec `recipe` behind this barrier.
  GridBits LinkBitsAt(const BarrierReport& report) const;
  BarrierDecision LookForBetter(const BarrierReport& report, bool is_new_step);
  ChangePlan Take(ChangePlan change);
  BarrierDecision Prove(const BarrierReport& report, const UnprovenChange& unproven);

  PlanMaker maker_;
  PeriodWatch watch_;
  std::optional<RunPredictor> predictor_;  // --predictor
  std::optional<Replanner> replanner_;     // none: the first plan holds to the end
  // The processor shares and sums of the first profile, on central's host of the last one, the link
  // rates as of the last barrier.
  MeasuredCluster cluster_;
  FirstLinks links_;
  PlanMembers members_;
  // Figures that the current plan was made from, and the last proposed one.
  MeasuredCluster made_from_;
  std::optional<MeasuredCluster> proposed_from_;
  Generation generation_;                   // generation of the plan that made_from_ is about
  std::optional<int64_t> measured_step_;    // last barrier at which devices were looked at
  std::optional<UnprovenChange> unproven_;  // at measured_step_
  bool is_replan_ordered_ = false;
  std::string remark_;         // about an order
  std::vector<int> refusals_;  // by device: how often its path was measured for a move in vain
  Forecast forecast_;
};

}  // namespace runnel
