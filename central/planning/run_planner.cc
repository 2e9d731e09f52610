#include "central/planning/run_planner.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/predicted_cost.h"
#include "central/settings/codec_settings.h"
#include "proto/base/batching.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<RunPlanner>> RunPlanner::Create(const RunSetup* setup,
                                                               int64_t stop_step,
                                                               const ModelState& state) {
  std::unique_ptr<RunPlanner> planner(new RunPlanner(setup));
  if (setup->settings.cost == "predicted" && NeedsProfile(*setup)) {
    RUNNEL_ASSIGN_OR_RETURN(planner->predictor_, MakeRunPredictor(*setup));
  }
  if (Replans(*setup)) planner->replanner_.emplace(planner->ReplanOptions(stop_step, state));
  return planner;
}

std::vector<LayerRange> RunPlanner::ProfileRanges() const {
  return predictor_.has_value() ? predictor_->representatives() : std::vector<LayerRange>();
}

std::string RunPlanner::Note() const {
  if (!predictor_.has_value() || predictor_->known_devices() > 0) return "";
  return absl::StrCat("no profile of ", setup_->model.name,
                      " is known: layers are predicted by the FLOPs line first");
}

absl::StatusOr<DeviceTimes> RunPlanner::Characterise(int device,
                                                     const std::vector<double>& seconds) {
  if (!predictor_.has_value())
    return absl::FailedPreconditionError("times of ranges, but nothing is predicted from them");
  RUNNEL_RETURN_IF_ERROR(predictor_->Characterise(device, seconds));
  return predictor_->Times(device);
}

absl::StatusOr<Plan> RunPlanner::FirstPlan(const std::vector<DeviceFacts>& devices,
                                           const std::vector<DeviceTimes>& times) {
  std::vector<int> numbers(devices.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  for (const DeviceFacts& device : devices)
    profiled_.processor_shares.push_back(device.processor_share);
  for (const DeviceTimes& one : times) profiled_.profiled_seconds.push_back(one.Sum());
  RUNNEL_ASSIGN_OR_RETURN(Plan plan, PlanFor(*setup_, Generation(1), numbers, times, profiled_));
  if (times.empty()) return plan;
  RUNNEL_ASSIGN_OR_RETURN(const double period_s, PredictPeriod(*setup_, plan, times, profiled_));
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup_->training));
  predicted_samples_per_s_ = static_cast<double>(batching.MicroBatchSizes().front()) / period_s;
  return plan;
}

BarrierDecision RunPlanner::AtBarrier(const BarrierReport& report) {
  if (!replanner_.has_value()) return KeepPlan{};
  NoteLinkRates(report.stages, report.devices.size(), link_rates_);
  if (predictor_.has_value() && measured_step_ != report.step) {
    std::vector<int> devices = replanner_->ToMeasure(report);
    measured_step_ = report.step;
    if (!devices.empty()) return MeasureDevices{std::move(devices)};
  }
  std::optional<ChangePlan> change = replanner_->AtBarrier(report);
  if (!change.has_value()) return KeepPlan{};
  return *std::move(change);
}

PlanBandwidth RunPlanner::AssumedBandwidth(const Plan& plan) const {
  return BandwidthOf(*setup_, plan, link_rates_);
}

Conditions RunPlanner::WithRates(LinkRates rates) const {
  Conditions conditions = profiled_;
  conditions.rates = std::move(rates);
  return conditions;
}

ReplannerOptions RunPlanner::ReplanOptions(int64_t stop_step, const ModelState& state) {
  ReplannerOptions options;
  if (MovesLayers(*setup_)) {
    options.make_plan = [this](const std::vector<int>& devices,
                               const std::vector<DeviceTimes>& times) {
      return PlanFor(*setup_, Generation(1), devices, times, WithRates(link_rates_));
    };
  }
  if (BitsFollowLinks(setup_->settings)) {
    options.fit_bits = [this](const Plan& plan, const std::vector<DeviceTimes>& times,
                              double bandwidth_share) {
      return RefitBits(*setup_, plan, times, WithRates(Scaled(link_rates_, bandwidth_share)));
    };
    options.coding_error = [this](const Plan& plan) { return CodingErrorOf(*setup_, plan); };
  }
  options.period_seconds = [this](const Plan& plan, const std::vector<DeviceTimes>& times) {
    return PredictPeriod(*setup_, plan, times, WithRates(link_rates_));
  };
  for (const LayerState& layer : state.layers) {
    int64_t bytes = 0;
    for (const auto* tensors : {&layer.tensors, &layer.momentum}) {
      for (const TensorData& tensor : *tensors) bytes += static_cast<int64_t>(tensor.bytes.size());
    }
    options.layer_state_bytes.push_back(bytes);
  }
  const RunSettings& settings = setup_->settings;
  const double mbps = settings.plan_mbps > 0 ? settings.plan_mbps : settings.link_mbps;
  if (mbps > 0) options.link_bytes_per_second = mbps * 1e6 / 8;
  options.micro_batches_a_step = settings.micro_batches;
  options.stop_step = stop_step;
  options.predictor = predictor_.has_value() ? &*predictor_ : nullptr;
  return options;
}

}  // namespace runnel
