#include "central/planning/run_planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/planning/codec_timing.h"
#include "central/planning/predicted_cost.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

ReplannerOptions OptionsFrom(const PlanningInputs& inputs) {
  ReplannerOptions options;
  options.layers_move = inputs.replan.layers_move;
  options.codecs_change = inputs.replan.codecs_change;
  options.layer_state_bytes = inputs.replan.layer_state_bytes;
  if (inputs.links.given.rate.is_set()) options.given_rate = inputs.links.given.rate;
  options.micro_batches_a_step = inputs.micro_batches;
  options.stop_step = inputs.replan.stop_step;
  return options;
}

// Of what --quick would train with.
absl::StatusOr<double> EvenPeriodSeconds(PlanningInputs inputs, const std::vector<int>& devices,
                                         const MeasuredCluster& cluster) {
  RUNNEL_ASSIGN_OR_RETURN(inputs.policy, FindPolicy("uniform"));
  inputs.codecs.follow_links = false;
  inputs.codecs.forward = inputs.codecs.backward = CodecSchedule(inputs.codecs.bits.exact);
  const PlanMaker maker(std::move(inputs));
  RUNNEL_ASSIGN_OR_RETURN(const Plan plan, maker.MakePlan(devices, cluster));
  return maker.PeriodSeconds(plan, cluster);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunPlanner>> RunPlanner::Create(PlanningInputs inputs) {
  std::unique_ptr<RunPlanner> planner(new RunPlanner(std::move(inputs)));
  const PlanningInputs& own = planner->inputs();
  if (own.needs_profile && own.predictor_profiles.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(planner->predictor_, MakeRunPredictor(own.model, own.micro_batch_size,
                                                                  *own.predictor_profiles));
  }
  if (own.replan.layers_move || own.replan.codecs_change) {
    CorrectionOptions corrections;
    if (planner->predictor_.has_value()) corrections.predictor = &*planner->predictor_;
    planner->replanner_.emplace(&planner->maker_, OptionsFrom(own), corrections);
  }
  return planner;
}

std::string RunPlanner::Warning() const {
  if (!predictor_.has_value()) return "";
  if (predictor_->known_devices() == 0) {
    return absl::StrCat("no profile of ", inputs().model.name,
                        " is known: layers are predicted by the FLOPs line first");
  }
  if (predictor_->row().network_file != nullptr) return "";
  return absl::StrCat(*inputs().predictor_profiles, " has no mlp.network: times are predicted by ",
                      predictor_->row().name, "; 'runnel-predictor train --profiles ",
                      *inputs().predictor_profiles, "' writes it");
}

ProfileNeeds RunPlanner::profile_needs() const {
  ProfileNeeds needs{inputs().needs_profile, {}};
  needs.paths = inputs().needs_profile && !inputs().links.given.rate.is_set();
  if (predictor_.has_value()) needs.ranges = predictor_->representatives();
  // The settings were checked: the families are known.
  if (needs.devices)
    needs.cost_codecs = CodecsToTime(inputs().codecs).value_or(std::vector<std::string>());
  return needs;
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
  for (const DeviceFacts& device : devices) {
    cluster_.processor_shares.push_back(device.processor_share);
    cluster_.costs.push_back(device.costs);
    cluster_.memory_bytes.push_back(device.memory_bytes);
  }
  for (const DeviceTimes& one : times) cluster_.profiled_sums.push_back(one.Sum());
  cluster_.rates = RatesOfPaths(devices, inputs().links.given.delay_seconds);
  MeasuredCluster cluster = cluster_;
  cluster.times = times;
  RUNNEL_ASSIGN_OR_RETURN(Plan plan, maker_.MakePlan(numbers, cluster));
  if (times.empty()) return plan;
  RUNNEL_ASSIGN_OR_RETURN(const double period_s, maker_.PeriodSeconds(plan, cluster));
  const auto samples = static_cast<double>(inputs().micro_batch_size);
  predicted_samples_per_s_ = samples / period_s;
  for (const int number : numbers) {
    const auto has = [number](const StagePlan& stage) { return stage.device.value() == number; };
    if (std::none_of(plan.stages.begin(), plan.stages.end(), has))
      unused_.push_back(devices[static_cast<size_t>(number)].name);
  }
  const absl::StatusOr<double> even_period_s = EvenPeriodSeconds(inputs(), numbers, cluster);
  if (even_period_s.ok()) even_samples_per_s_ = samples / *even_period_s;
  return plan;
}

std::string RunPlanner::Explanation() const {
  if (predicted_samples_per_s_ == 0) return "";
  std::string text = absl::StrFormat("policy %s predicts %.0f samples/s", inputs().policy->name,
                                     predicted_samples_per_s_);
  if (even_samples_per_s_ > 0) {
    absl::StrAppendFormat(&text, "; an even cut without compression (--quick) %.0f: %.2f times",
                          even_samples_per_s_, predicted_samples_per_s_ / even_samples_per_s_);
  }
  if (!unused_.empty()) {
    absl::StrAppend(&text, "; without ", absl::StrJoin(unused_, ", "),
                    ": with a stage there it would be slower");
  }
  return text;
}

BarrierDecision RunPlanner::AtBarrier(const BarrierReport& report) {
  if (!replanner_.has_value()) return KeepPlan{};
  RecordLinkRates(report.stages, report.devices.size(), cluster_.rates);
  if (std::exchange(measured_step_, report.step) != report.step) {
    std::vector<int> devices = replanner_->DevicesToMeasure(report, cluster_);
    if (!devices.empty()) return MeasureDevices{std::move(devices)};
  }
  std::optional<ChangePlan> change = replanner_->ProposeChange(report, cluster_);
  if (!change.has_value()) return KeepPlan{};
  return *std::move(change);
}

PlanBandwidth RunPlanner::AssumedBandwidth(const Plan& plan) const {
  return maker_.AssumedBandwidth(plan, cluster_.rates);
}

}  // namespace runnel
