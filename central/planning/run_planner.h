#pragma once

// The planner of a run whose plans its policy makes: what devices and links are taken for, whether
// layers move, how many bits the links have.

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/planner.h"
#include "central/planning/replanner.h"
#include "central/planning/run_setup.h"
#include "predictor/run/run_predictor.h"
#include "proto/base/model_state.h"

namespace runnel {

class RunPlanner final : public Planner {
 public:
  // `setup` is borrowed; `state` is that of all layers. Errors as MakeRunPredictor.
  static absl::StatusOr<std::unique_ptr<RunPlanner>> Create(const RunSetup* setup,
                                                            int64_t stop_step,
                                                            const ModelState& state);

  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>& devices,
                                 const std::vector<DeviceTimes>& times) override;
  BarrierDecision AtBarrier(const BarrierReport& report) override;
  absl::StatusOr<DeviceTimes> Characterise(int device, const std::vector<double>& seconds) override;
  PlanBandwidth AssumedBandwidth(const Plan& plan) const override;
  double predicted_samples_per_s() const override { return predicted_samples_per_s_; }

  // What is to be measured of each device; empty: its layers.
  std::vector<LayerRange> ProfileRanges() const;
  // Something that the user should know beforehand; empty: nothing.
  std::string Note() const;

 private:
  explicit RunPlanner(const RunSetup* setup) : setup_(setup) {}
  ReplannerOptions ReplanOptions(int64_t stop_step, const ModelState& state);
  Conditions WithRates(LinkRates rates) const;

  const RunSetup* setup_;
  std::optional<RunPredictor> predictor_;  // --cost predicted
  std::optional<Replanner> replanner_;
  std::optional<int64_t> measured_step_;  // barrier at which devices are being measured
  Conditions profiled_;                   // of devices, as first measured
  LinkRates link_rates_;                  // as of the last barrier
  double predicted_samples_per_s_ = 0;
};

}  // namespace runnel
