#include "central/planning/run_planner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/planning/live/given_links.h"
#include "central/planning/measured/codec_timing.h"
#include "central/planning/noise_by_way.h"
#include "central/planning/predicted_cost.h"
#include "central/planning/what_if.h"
#include "partition/pipeline_model.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

ReplannerOptions OptionsFrom(const PlanningInputs& inputs) {
  ReplannerOptions options;
  options.layers_move = inputs.replan.layers_move;
  options.codecs_change = inputs.replan.codecs_change;
  options.takes_next = inputs.policy->next != nullptr;
  options.layer_state_bytes = inputs.replan.layer_state_bytes;
  if (inputs.links.given.rate.is_set()) options.given_rate = inputs.links.given.rate;
  options.micro_batches_a_step = inputs.micro_batches;
  options.stop_step = inputs.replan.stop_step;
  return options;
}

// What the workers on central's host may have of its processors. The first device is measured alone,
// and the others by what they take beside one another.
double HostProcessors(const PlanningInputs& inputs) {
  if (inputs.policy->basis == PlanBasis::kFirstDevice || inputs.host_processors <= 0) return 0;
  return std::max(inputs.host_processors, kLeastProcessors);
}

// As many of the workers on central's host measure at the same time as have a processor each: where
// they got less, others took the rest. Each stage will get as much less, be it one or many.
double FreeShare(const std::vector<DeviceFacts>& devices) {
  double shares = 0;
  double locals = 0;
  bool is_busy = false;
  for (const DeviceFacts& device : devices) {
    if (!device.is_local || device.is_lost) continue;
    shares += device.processor_share;
    ++locals;
    is_busy |= device.processor_share < kWholeProcessor;
  }
  return is_busy ? shares / locals : 1;
}

// The period that --quick would train with.
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

absl::StatusOr<std::unique_ptr<RunPlanner>> RunPlanner::Create(PlanningInputs inputs,
                                                               std::unique_ptr<PlanSearch> search) {
  std::unique_ptr<RunPlanner> planner(new RunPlanner(std::move(inputs)));
  const PlanningInputs& own = planner->inputs();
  if (own.needs_profile && own.predictor_profiles.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(
        planner->predictor_,
        MakeRunPredictor(own.model, own.micro_batch_size, own.predictor, *own.predictor_profiles));
  }
  if (own.replan.layers_move || own.replan.codecs_change) {
    CorrectionOptions corrections;
    if (planner->predictor_.has_value()) corrections.predictor = &*planner->predictor_;
    corrections.by_first_device = own.policy->basis == PlanBasis::kFirstDevice;
    planner->replanner_.emplace(&planner->maker_, OptionsFrom(own), corrections, std::move(search));
  }
  return planner;
}

std::string RunPlanner::Warning() const {
  if (!predictor_.has_value() || predictor_->known_devices() > 0) return "";
  return absl::StrCat("no profile of ", inputs().model.name,
                      " is known: layers are predicted by the FLOPs line first");
}

ProfileNeeds RunPlanner::profile_needs() const {
  ProfileNeeds needs{inputs().needs_profile, {}};
  needs.first_only = inputs().policy->basis == PlanBasis::kFirstDevice;
  if (predictor_.has_value()) needs.ranges = predictor_->representatives();
  // The settings were checked: the families are known.
  if (needs.devices)
    needs.cost_codecs = CodecsToTime(inputs().codecs).value_or(std::vector<std::string>());
  return needs;
}

bool RunPlanner::ProbesPath(const std::vector<DeviceFacts>& devices, int device) const {
  const LinkInputs& links = inputs().links;
  return inputs().needs_profile && !links.given.rate.is_set() &&
         !GivesPath(links.ways, devices, device);
}

absl::Status RunPlanner::SetFirstRates(const std::vector<DeviceFacts>& devices) {
  RUNNEL_RETURN_IF_ERROR(links_.Set(inputs().links, devices));
  cluster_.rates = links_.rates();
  // The last stage says that it is there, and central's answer comes back.
  for (const DeviceFacts& device : devices) {
    const double round_trip =
        device.path.down.delay_seconds.value_or(0) + device.path.up.delay_seconds.value_or(0);
    cluster_.barrier_pause_seconds = std::max(cluster_.barrier_pause_seconds, round_trip);
  }
  return absl::OkStatus();
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
  std::vector<int> numbers;
  const bool by_first_device = inputs().policy->basis == PlanBasis::kFirstDevice;
  cluster_ = {.noise_ratios = cluster_.noise_ratios, .link_bits = cluster_.link_bits};
  std::vector<bool> usable;
  for (size_t i = 0; i < devices.size(); ++i) {
    // One that was lost again, or came when the others had been measured.
    const bool is_known =
        times.empty() || by_first_device || (i < times.size() && !times[i].empty());
    usable.push_back(!devices[i].is_lost && is_known);
    if (usable.back()) numbers.push_back(static_cast<int>(i));
    const DeviceFacts& device = devices[i];
    cluster_.processor_shares.push_back(device.processor_share);
    cluster_.costs.push_back(device.costs);
    cluster_.on_host.push_back(device.is_local);
    cluster_.memory.push_back({device.name, device.memory_bytes, device.memory_of});
  }
  cluster_.host_processors = HostProcessors(inputs());
  if (cluster_.host_processors > 0) cluster_.free_share = FreeShare(devices);
  members_.Set(std::move(usable));
  for (const DeviceTimes& one : times) cluster_.profiled_sums.push_back(one.Sum());
  if (!times.empty()) cluster_.profiled_sums.resize(devices.size());
  RUNNEL_RETURN_IF_ERROR(SetFirstRates(devices));
  MeasuredCluster cluster = cluster_;
  // One device's times predict nothing of a pipeline.
  if (!by_first_device) cluster.times = times;
  made_from_ = cluster;
  RUNNEL_ASSIGN_OR_RETURN(Plan plan, maker_.MakePlan(numbers, cluster));
  if (cluster.times.empty()) return plan;
  RUNNEL_ASSIGN_OR_RETURN(const PlanRating rating, maker_.Rate(plan, cluster));
  const auto samples = static_cast<double>(inputs().micro_batch_size);
  forecast_.samples_per_s = samples / rating.period_seconds;
  forecast_.staleness = rating.staleness;
  if (rating.noise > 0) forecast_.noise = NoiseText(plan, rating.noise_by_link);
  for (const int number : numbers) {
    if (!plan.Uses(number)) forecast_.unused.push_back(devices[static_cast<size_t>(number)].name);
  }
  const absl::StatusOr<double> even_period_s = EvenPeriodSeconds(inputs(), numbers, cluster);
  if (even_period_s.ok()) forecast_.even_samples_per_s = samples / *even_period_s;
  return plan;
}

void RunPlanner::SetNoise(const NoiseMeasured& noise) {
  if (noise.by_table <= 0 || !std::isfinite(noise.added)) return;
  cluster_.noise_ratios = NoiseRatiosOf(noise);
}

absl::StatusOr<Planner::LateAnswer> RunPlanner::WhatIf(const std::string& assumption,
                                                       const PlanDecided& decided) const {
  // Who joined after the plan was made is not in its list.
  std::vector<bool> usable = members_.usable();
  usable.resize(decided.devices.size());
  RUNNEL_ASSIGN_OR_RETURN(Assumption parsed, ParseAssumption(assumption, decided.devices, usable));
  return LateAnswer([inputs = inputs(), decided, cluster = cluster_, usable = std::move(usable),
                     parsed = std::move(parsed)] {
    return runnel::WhatIf(inputs, decided, cluster, usable, parsed);
  });
}

std::string RunPlanner::Explanation() const {
  if (inputs().policy->next != nullptr && inputs().replan.layers_move) {
    return absl::StrCat("policy ", inputs().policy->name,
                        " begins with an even cut; what its stages take tells where it cuts next");
  }
  if (forecast_.samples_per_s == 0) return "";
  std::string text = absl::StrFormat("policy %s predicts %.0f samples/s", inputs().policy->name,
                                     forecast_.samples_per_s);
  if (forecast_.even_samples_per_s > 0) {
    absl::StrAppendFormat(&text, "; an even cut without compression (--quick) %.0f: %.2f times",
                          forecast_.even_samples_per_s,
                          forecast_.samples_per_s / forecast_.even_samples_per_s);
  }
  if (!forecast_.noise.empty()) absl::StrAppend(&text, "; ", forecast_.noise);
  if (forecast_.staleness > 0) {
    absl::StrAppendFormat(&text, "; stale gradients take about %.2g %% more samples to an accuracy",
                          100 * forecast_.staleness);
  }
  std::vector<int> on_host;
  for (int i = 0; i < static_cast<int>(members_.devices()); ++i) {
    const auto device = static_cast<size_t>(i);
    if (members_.usable()[device] && cluster_.SharesHost(device)) on_host.push_back(i);
  }
  if (cluster_.CrowdHost(on_host)) {
    absl::StrAppendFormat(&text, "; %d worker%s %.2g processor%s of this host", on_host.size(),
                          on_host.size() == 1 ? " has" : "s share", cluster_.host_processors,
                          cluster_.host_processors == 1 ? "" : "s");
  }
  if (!on_host.empty() && cluster_.free_share < 1) {
    absl::StrAppendFormat(&text, "; others took %.0f %% of this host when it was measured",
                          100 * (1 - cluster_.free_share));
  }
  if (!forecast_.unused.empty()) {
    absl::StrAppend(&text, "; without ", absl::StrJoin(forecast_.unused, ", "),
                    ": with a stage there it would be slower, or learn more slowly");
  }
  if (!links_.media_text().empty()) absl::StrAppend(&text, "; ", links_.media_text());
  return text;
}

// A plan of another generation than at the last report is the first one, or the one that was
// proposed.
void RunPlanner::Compare(const BarrierReport& report) {
  if (std::exchange(generation_, report.plan.generation) != report.plan.generation &&
      proposed_from_.has_value()) {
    made_from_ = *std::exchange(proposed_from_, std::nullopt);
  }
  watch_.Report(report, made_from_, cluster_.rates);
}

BarrierReport RunPlanner::UsableOf(BarrierReport report) const {
  if (report.times.empty()) return report;
  const bool by_first_device = inputs().policy->basis == PlanBasis::kFirstDevice;
  for (size_t i = 0; i < report.devices.size(); ++i) {
    const bool is_known = i < report.times.size() && (by_first_device || !report.times[i].empty());
    report.devices[i].is_lost |= !is_known;
  }
  return report;
}

void RunPlanner::FollowMembers(const BarrierReport& usable) {
  const std::vector<DeviceFacts>& devices = usable.devices;
  if (members_.devices() < devices.size()) {
    cluster_.processor_shares.resize(devices.size(), 1);
    cluster_.costs.resize(devices.size());
    cluster_.memory.resize(devices.size());
    cluster_.on_host.resize(devices.size(), false);
    if (!cluster_.profiled_sums.empty()) cluster_.profiled_sums.resize(devices.size());
    refusals_.resize(devices.size());
    GrowRates(devices.size(), cluster_.rates);
    links_.Grow(devices.size());
  }
  // Measured again, without the others: its times are of another share.
  for (size_t i = 0; i < cluster_.profiled_sums.size() && cluster_.host_processors > 0; ++i) {
    if (!devices[i].is_local || devices[i].processor_share == cluster_.processor_shares[i])
      continue;
    cluster_.processor_shares[i] = devices[i].processor_share;
    if (i < usable.times.size()) cluster_.profiled_sums[i] = usable.times[i].Sum();
  }
  for (const int came : members_.Follow(devices)) {
    const auto i = static_cast<size_t>(came);
    cluster_.processor_shares[i] = devices[i].processor_share;
    cluster_.costs[i] = devices[i].costs;
    cluster_.on_host[i] = devices[i].is_local;
    cluster_.memory[i] = {devices[i].name, devices[i].memory_bytes, devices[i].memory_of};
    if (!cluster_.profiled_sums.empty()) cluster_.profiled_sums[i] = usable.times[i].Sum();
  }
}

BarrierDecision RunPlanner::PlanForMembers(const BarrierReport& usable) {
  members_.Planned();
  absl::StatusOr<Plan> plan = PlanForSurvivors(usable);
  if (!plan.ok()) return KeepPlan{};  // more devices than layers, for example
  return ChangePlan{*std::move(plan),
                    absl::StrCat("step ", usable.step, ": other workers take part")};
}

GridBits RunPlanner::LinkBitsAt(const BarrierReport& report) const {
  const CodecInputs& codecs = inputs().codecs;
  static const std::vector<TrainingChange> kNone;
  return codecs.levels.Planned(report.changes == nullptr ? kNone : *report.changes,
                               report.step / codecs.steps_per_epoch, report.step);
}

BarrierDecision RunPlanner::AtBarrier(const BarrierReport& given) {
  const BarrierReport report = UsableOf(given);
  FollowMembers(report);
  const bool is_new_step = std::exchange(measured_step_, report.step) != report.step;
  if (report.pace.barrier_every > 0 && inputs().barrier_every > 0)
    cluster_.barrier_every = report.pace.barrier_every;
  cluster_.link_bits = LinkBitsAt(report);
  if (is_new_step) {
    SetRelayedWays(report.stages, report.devices, cluster_.rates);
    RecordLinkRates(report.stages, report.devices.size(), cluster_.rates);
    ForgetIdleWays(report.stages, links_.rates(), refusals_, cluster_.rates);
    Compare(report);
    unproven_.reset();
    std::vector<int> devices = members_.AskNew(given.devices, report.devices);
    if (!devices.empty()) return MeasureDevices{std::move(devices), {}, /*beside=*/true};
  }
  const bool looks_for_better =
      replanner_.has_value() && inputs().replan.layers_move && inputs().policy->next == nullptr;
  if (members_.changed() && !looks_for_better && inputs().replan.follows_members)
    return PlanForMembers(report);
  if (!replanner_.has_value()) return KeepPlan{};
  return LookForBetter(report, is_new_step);
}

BarrierDecision RunPlanner::LookForBetter(const BarrierReport& report, bool is_new_step) {
  if (is_new_step) {
    std::vector<int> devices = replanner_->DevicesToMeasure(report, cluster_);
    if (!devices.empty()) return MeasureDevices{std::move(devices)};
  }
  if (unproven_.has_value()) return Prove(report, *std::exchange(unproven_, std::nullopt));
  const bool is_ordered = std::exchange(is_replan_ordered_, false);
  std::optional<ChangePlan> change = is_ordered ? replanner_->PlanNow(report, cluster_)
                                                : replanner_->ProposeChange(report, cluster_);
  if (is_ordered) {
    remark_ = absl::StrCat("step ", report.step, ": planned anew, as ordered: ",
                           change.has_value() ? "another plan is faster"
                                              : "no other plan would save time until the end");
  }
  if (!change.has_value()) return KeepPlan{};
  // A policy as published moves by its own figures.
  MeasureDevices measure;
  if (inputs().policy->next == nullptr) {
    measure.devices = replanner_->IdleDevicesToMeasure(report, cluster_, change->plan);
    measure.paths = IdlePaths(report, change->plan);
  }
  if (measure.devices.empty() && measure.paths.empty()) return Take(*std::move(change));
  unproven_ = UnprovenChange{*std::move(change), measure};
  return measure;
}

absl::Status RunPlanner::OrderReplan() {
  if (inputs().policy->next != nullptr && inputs().replan.layers_move) {
    return absl::FailedPreconditionError(
        absl::StrCat("policy ", inputs().policy->name, " plans anew at each barrier by itself"));
  }
  if (!replanner_.has_value() || !inputs().replan.layers_move) {
    return absl::FailedPreconditionError(
        "layers do not move in this run: it was started with --replan off, --quick or a policy "
        "that "
        "measures nothing; --policy runnel moves them");
  }
  is_replan_ordered_ = true;
  return absl::OkStatus();
}

ChangePlan RunPlanner::Take(ChangePlan change) {
  proposed_from_ = cluster_;
  proposed_from_->times = change.times;
  return change;
}

std::vector<int> RunPlanner::IdlePaths(const BarrierReport& report, const Plan& next) const {
  const auto is_local = [&report](int device) {
    return report.devices[static_cast<size_t>(device)].is_local;
  };
  // The devices on other hosts that exchange tensors with central's host.
  const auto paths_of = [&is_local](const Plan& plan) {
    std::set<int> paths;
    const std::vector<int> devices = plan.sole_devices();
    for (size_t i = 0; i + 1 < devices.size(); ++i) {
      if (is_local(devices[i]) == is_local(devices[i + 1])) continue;
      paths.insert(devices[is_local(devices[i]) ? i + 1 : i]);
    }
    return paths;
  };
  const std::set<int> used = paths_of(report.plan);
  std::vector<int> idle;
  for (const int device : paths_of(next)) {
    if (!used.contains(device) && ProbesPath(report.devices, device)) idle.push_back(device);
  }
  return idle;
}

BarrierDecision RunPlanner::Prove(const BarrierReport& report, const UnprovenChange& unproven) {
  const MeasureDevices& measured = unproven.measure;
  RecordPaths(report.devices, measured.paths, inputs().links.given.delay_seconds, cluster_.rates);
  const Plan& plan = unproven.change.plan;
  const std::vector<int> devices = plan.devices();
  const bool is_there = std::none_of(devices.begin(), devices.end(), [&report](int device) {
    return report.devices[static_cast<size_t>(device)].is_lost;
  });
  std::optional<ChangePlan> change =
      is_there ? replanner_->Reconsider(report, cluster_, plan, measured.devices) : std::nullopt;
  refusals_.resize(report.devices.size());
  for (const int device : measured.paths) {
    int& refusals = refusals_[static_cast<size_t>(device)];
    refusals = change.has_value() ? 0 : refusals + 1;
  }
  if (!change.has_value()) return KeepPlan{};
  return Take(*std::move(change));
}

absl::StatusOr<Plan> RunPlanner::PlanForSurvivors(const BarrierReport& given) {
  const BarrierReport report = UsableOf(given);
  FollowMembers(report);
  members_.Planned();
  cluster_.link_bits = LinkBitsAt(report);
  std::vector<int> numbers;
  MeasuredCluster cluster = cluster_;
  for (size_t i = 0; i < report.devices.size(); ++i) {
    if (!report.devices[i].is_lost) numbers.push_back(static_cast<int>(i));
    cluster.memory[i] = {report.devices[i].name, report.devices[i].memory_bytes,
                         report.devices[i].memory_of};
  }
  const bool is_corrected = replanner_.has_value() && !replanner_->corrections().ratios().empty() &&
                            !report.times.empty();
  cluster.times = is_corrected ? replanner_->corrections().CorrectedTimes(report) : report.times;
  // Times of one device predict nothing of a pipeline, as for the first plan.
  if (!is_corrected && inputs().policy->basis == PlanBasis::kFirstDevice) cluster.times.clear();
  // Caps that the user gave are for the devices that were there.
  PlanningInputs inputs = maker_.inputs();
  if (inputs.caps.size() != numbers.size()) inputs.caps.clear();
  const PlanMaker maker(std::move(inputs));
  RUNNEL_ASSIGN_OR_RETURN(Plan plan, maker.MakePlan(numbers, cluster));
  made_from_ = std::move(cluster);
  proposed_from_.reset();
  measured_step_.reset();
  return plan;
}

PlanBandwidth RunPlanner::AssumedBandwidth(const Plan& plan) const {
  PlanBandwidth bandwidth = maker_.AssumedBandwidth(plan, cluster_.rates);
  if (bandwidth.source == "measured" && cluster_.rates == links_.given())
    bandwidth.source = "--links";
  return bandwidth;
}

}  // namespace runnel
