#include "central/planning/plan_maker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/planning/kept_samples.h"
#include "central/planning/measured/device_corrections.h"
#include "central/planning/memory_check.h"
#include "partition/plan_builder.h"
#include "predictor/cost/measured_cost.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control.h"

namespace runnel {
namespace {

// Processor time of a worker beside computation and coding, on an x86-64 server (hosts of the lab,
// 20 kB to 2 MB a micro-batch at 100 Mbps, packets of 1500 bytes): for a micro-batch; at each end
// for a frame and its acknowledgement; for a byte on a link; for a byte that central feeds.
constexpr double kMicroBatchProcessorSeconds = 0.9e-3;
constexpr double kFrameProcessorSeconds = 0.15e-3;
constexpr double kLinkByteProcessorSeconds = 2e-9;
constexpr double kFeedByteProcessorSeconds = 0.8e-9;
// The lab server's own measurements (DeviceCosts), over loopback: another device's costs are those
// above times its measurements over these. Between workers of one host frames cost what was
// measured, a tenth of what they cost on a network.
constexpr double kServerFrameSeconds = 30e-6;
constexpr double kServerLinkByteSeconds = 0.2e-9;
// Those frames are small and stay in the caches. A boundary tensor of megabytes does not: beyond what
// was measured its bytes cost this many times as much again, at each end.
constexpr double kColdBytes = 2.5;
// Of central's host, what central and each worker take of a processor beside micro-batches:
// heartbeats, telemetry, the display.
constexpr double kCentralShare = 0.02;
constexpr double kWorkerShare = 0.006;
// With this many micro-batches the share that fills and drains the pipeline is small.
constexpr int64_t kMostSimulated = 1000;
// A wired network's delay is below this and not worth a line.
constexpr double kShownDelaySeconds = 0.5e-3;

// Transport costs of a device by itself, in seconds of its wall clock at full speed. Unless it
// measured them, we assume that they scale as its training does beside device 0's.
struct TransportScale {
  double frames = 1;
  double bytes = 1;
};
TransportScale ScaleOf(const DeviceCosts& costs, double training_ratio) {
  TransportScale scale{training_ratio, training_ratio};
  if (costs.frame_seconds > 0) scale.frames = costs.frame_seconds / kServerFrameSeconds;
  if (costs.link_byte_seconds > 0) scale.bytes = costs.link_byte_seconds / kServerLinkByteSeconds;
  return scale;
}

// Costs were measured as processor time: a device that gets a share of a processor needs more of
// the wall clock. A device on central's host gets as much as the others there leave: its costs are
// those of a whole processor, and the cost model shares the host's. Later corrections of its times
// (MeasuredCluster::profiled_sums) concern coding too.
void AddDeviceCosts(const MeasuredCluster& cluster, PlanRequest& request) {
  std::vector<double> now;
  for (const DeviceTimes& times : cluster.times) now.push_back(times.Sum());
  const std::vector<double>& profiled = cluster.profiled_sums.empty() ? now : cluster.profiled_sums;
  // Of what its host has free: all stages there get as much less.
  const auto measured_share = [&cluster](size_t device) {
    const double share = cluster.processor_shares.empty() ? 1.0 : cluster.processor_shares[device];
    return cluster.SharesHost(device) ? share / cluster.free_share : share;
  };
  std::vector<int> devices;
  for (const DeviceId id : request.devices) devices.push_back(id.value());
  const bool is_host_crowded = cluster.CrowdHost(devices);
  if (cluster.host_processors > 0) {
    // Stages that leave no processor idle leave none to the rest.
    const double beside =
        is_host_crowded ? kCentralShare + kWorkerShare * cluster.OnHost(devices) : 0;
    request.host_processors = {std::max(cluster.host_processors - beside, kLeastProcessors)};
  }
  for (const DeviceId id : request.devices) {
    const auto device = static_cast<size_t>(id.value());
    const bool shares_host = cluster.SharesHost(device);
    // What the device gets while it computes, as far as that is not the cost model's to say.
    const double share = shares_host ? cluster.free_share : measured_share(device);
    const DeviceCosts costs = cluster.costs.empty() ? DeviceCosts() : cluster.costs[device];
    DeviceCost& cost = request.device_costs.emplace_back();
    if (!cluster.memory.empty() && cluster.memory[device].may_take_bytes > 0) {
      cost.memory_limit_bytes = std::max<int64_t>(1, StageLimitOf(cluster.memory[device]));
    }
    if (costs.forward_share > 0) {
      cost.forward_share = costs.forward_share;
      cost.input_gradient_share = costs.input_gradient_share;
    }
    const double slower = profiled[device] > 0 ? now[device] / profiled[device] : 1;
    cost.codec_seconds_per_byte = slower * costs.coder_seconds_per_byte / share;
    if (shares_host) {
      cost.host = 0;
      // Times of a whole processor are of the wall clock.
      if (cluster.free_share < 1 || measured_share(device) < kWholeProcessor)
        cost.measured_share = measured_share(device);
    }
    const bool is_crowded = shares_host && is_host_crowded;
    if (measured_share(device) >= kWholeProcessor && !is_crowded) continue;
    cost.shares_processor = true;
    // Ratio of processor times, as ScaleOf wants it.
    const double training_ratio = profiled[0] > 0 ? profiled[device] * measured_share(device) /
                                                        (profiled[0] * measured_share(0))
                                                  : 1;
    const TransportScale scale = ScaleOf(costs, training_ratio);
    const double frame_seconds = scale.frames * kFrameProcessorSeconds / share;
    cost.micro_batch_seconds = scale.frames * kMicroBatchProcessorSeconds / share;
    cost.network = {frame_seconds, scale.bytes * kLinkByteProcessorSeconds / share};
    cost.within_host = {scale.frames * kServerFrameSeconds / share,
                        scale.bytes * kServerLinkByteSeconds / share};
    cost.tensor_byte_seconds = kColdBytes * cost.within_host.byte_seconds;
    cost.feed = {frame_seconds, scale.bytes * kFeedByteProcessorSeconds / share};
  }
}

// The run's codecs, in which codec `recipe` has the bits of its present level: sizes, by which memory
// is checked, are those of the largest, and the shares of them that are sent are the level's.
absl::StatusOr<CodecChoice> ChoiceAtLevel(const CodecInputs& codecs, GridBits bits, int64_t epochs,
                                          const NumberFormat& format) {
  const LinkPlan named = {codecs.forward, codecs.backward};
  if (!codecs.levels.any()) return MakeCodecChoice(named, epochs, format);
  const auto with = [&named](const GridBits& of_level) {
    return LinkPlan{
        named.codec_forward.Replaced(RecipeCodec(), LevelCodec(Direction::kForward, of_level)),
        named.codec_backward.Replaced(RecipeCodec(), LevelCodec(Direction::kBackward, of_level))};
  };
  if (bits == GridBits()) bits = codecs.levels.Planned({}, 0, 0);
  const LinkPlan now = with(bits), largest = with(codecs.levels.Largest());
  RUNNEL_ASSIGN_OR_RETURN(CodecChoice choice, MakeCodecChoice(largest, epochs, format));
  RUNNEL_ASSIGN_OR_RETURN(const CodecChoice present, MakeCodecChoice(now, epochs, format));
  // Of a large tensor, in which headers do not count.
  const Shape shape = {1 << 20};
  const auto share = [&shape](const EncodedBytesFn& sent, const EncodedBytesFn& most) {
    return static_cast<double>(sent(shape).value()) / static_cast<double>(most(shape).value());
  };
  choice.forward_share =
      present.forward_share * share(present.encoded_forward, choice.encoded_forward);
  choice.backward_share =
      present.backward_share * share(present.encoded_backward, choice.encoded_backward);
  choice.forward_error = present.forward_error;
  choice.backward_error = present.backward_error;
  choice.lossy_directions = present.lossy_directions;
  choice.forward = codecs.forward;
  choice.backward = codecs.backward;
  return choice;
}

absl::StatusOr<MeasuredCost> MakeCost(const std::vector<int>& devices,
                                      const std::vector<DeviceTimes>& times) {
  std::vector<DeviceTimes> chosen;
  for (int device : devices) chosen.push_back(times[device]);
  return MeasuredCost::Create(std::move(chosen));
}

// Two barriers, one committed and one on its way, each with the stage's own state and a
// neighbour's.
constexpr int64_t kStateCopies = 4;
// A plan may be so much slower if its workers have room for copies in return: without copies a loss
// throws training back to the last state that central has.
constexpr double kRoomIsWorth = 1.25;
// A plan that makes layers again although another one fits without has to be faster by so much, for
// the time of the second forward is an estimate.
constexpr double kFasterForRecompute = 0.95;

absl::StatusOr<bool> Fits(const PlanRequest& request, const Plan& plan,
                          const MeasuredCluster& cluster) {
  const absl::Status fits = CheckMemory(request, plan, cluster.memory);
  if (fits.ok() || absl::IsInvalidArgument(fits)) return fits.ok();
  return fits;
}

// Times of devices whose stages make their layers again.
std::vector<DeviceTimes> TimesOf(const Plan& plan, std::vector<DeviceTimes> times) {
  for (const StagePlan& stage : plan.stages) {
    DeviceTimes& own = OfSoleDevice(stage, times);
    if (stage.recompute) own = own.Scaled(kRecomputeTime);
  }
  return times;
}

// The plan, in which only the stages that would not fit otherwise make their layers of `whole` again.
absl::StatusOr<Plan> RecomputeWhereNeeded(PlanRequest request, Plan plan, const ModelSpec& whole,
                                          const MeasuredCluster& cluster) {
  ModelSpec model;
  request.model = &model;
  for (StagePlan& stage : plan.stages) stage.recompute = true;
  for (StagePlan& stage : plan.stages) {
    stage.recompute = false;
    model = WithRecompute(whole, plan);
    RUNNEL_ASSIGN_OR_RETURN(const bool fits, Fits(request, plan, cluster));
    stage.recompute = !fits;
  }
  return plan;
}

bool LimitsMemory(const MeasuredCluster& cluster) {
  return std::any_of(cluster.memory.begin(), cluster.memory.end(),
                     [](const DeviceMemory& device) { return device.may_take_bytes > 0; });
}

}  // namespace

std::vector<std::vector<LinkSpeed>> PlanMaker::SpeedsBetween(const std::vector<int>& devices,
                                                             const LinkRates& rates) const {
  std::vector<std::vector<LinkSpeed>> speeds = SpeedsOf(rates, devices, inputs_.links.given);
  for (const AssumedLink& link : inputs_.links.assumed) {
    for (size_t from = 0; from < devices.size(); ++from) {
      for (size_t to = 0; to < devices.size(); ++to) {
        if (devices[from] != link.from || devices[to] != link.to) continue;
        speeds[from][to].rate = link.rate;
        speeds[to][from].rate = link.rate;
      }
    }
  }
  return speeds;
}

// Makes the request without a cost model, which it borrows from the caller.
absl::StatusOr<PlanRequest> PlanMaker::RequestFor(const std::vector<int>& devices,
                                                  const MeasuredCluster& cluster) const {
  const CodecInputs& codecs = inputs_.codecs;
  PlanRequest request;
  request.model = &inputs_.model;
  request.policy = inputs_.policy;
  request.schedule = inputs_.schedule;
  request.format = inputs_.format;
  request.recipe_memory = inputs_.recipe_memory;
  for (int device : devices) request.devices.push_back(DeviceId(device));
  request.micro_batches = inputs_.micro_batches;
  request.micro_batch_size = inputs_.micro_batch_size;
  request.short_step = inputs_.short_step;
  request.dataset_samples = inputs_.dataset_samples;
  RUNNEL_ASSIGN_OR_RETURN(
      request.codecs, ChoiceAtLevel(codecs, cluster.link_bits, codecs.bits.epochs, request.format));
  request.link_speeds = SpeedsBetween(devices, cluster.rates);
  const auto is_on_host = [&cluster](int device) {
    return !cluster.on_host.empty() && cluster.on_host[static_cast<size_t>(device)];
  };
  for (size_t from = 0; from < devices.size(); ++from) {
    for (size_t to = 0; to < devices.size(); ++to) {
      request.link_speeds[from][to].within_host =
          is_on_host(devices[from]) && is_on_host(devices[to]);
    }
  }
  request.caps = inputs_.caps;
  request.barrier_every = cluster.barrier_every > 0 ? cluster.barrier_every : inputs_.barrier_every;
  request.barrier_pause_seconds = cluster.barrier_pause_seconds;
  request.noise_ratios = cluster.noise_ratios;
  // A plan that was measured to add more is charged without end, so that another one takes its
  // place.
  if (codecs.follow_links) request.noise_budget = codecs.bits.noise_budget;
  request.looks_ahead = inputs_.looks_ahead;
  request.raised_looks_ahead = inputs_.raised_looks_ahead;
  if (!cluster.times.empty()) AddDeviceCosts(cluster, request);
  return request;
}

absl::StatusOr<Plan> PlanMaker::MakePlan(const std::vector<int>& devices,
                                         const MeasuredCluster& cluster) const {
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, RequestFor(devices, cluster));
  return MakePlanFor(std::move(request), devices, cluster);
}

absl::StatusOr<Plan> PlanMaker::NextPlan(const Plan& held, const MeasuredCluster& cluster) const {
  const std::vector<int> devices = held.sole_devices();
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, RequestFor(devices, cluster));
  for (const StagePlan& stage : held.stages) request.held.push_back(stage.last_layer);
  return MakePlanFor(std::move(request), devices, cluster);
}

absl::StatusOr<Plan> PlanMaker::FittingPlanFor(const PlanRequest& request,
                                               const std::vector<int>& devices,
                                               const MeasuredCluster& cluster) const {
  absl::StatusOr<Plan> plan = AnyPlanFor(request, devices, cluster);
  if (plan.ok())
    RUNNEL_RETURN_IF_ERROR(CheckKeptSamples(*plan, inputs_.model, inputs_.dataset_samples));
  if (cluster.memory.empty()) return plan;
  if (absl::IsResourceExhausted(plan.status())) return NoRoomError(request, cluster.memory);
  RUNNEL_RETURN_IF_ERROR(plan.status());
  PlanRequest checked = request;
  RUNNEL_RETURN_IF_ERROR(AddCodecsOf(*plan, inputs_.codecs.bits.epochs, checked));
  RUNNEL_RETURN_IF_ERROR(CheckMemory(checked, *plan, cluster.memory));
  return plan;
}

absl::StatusOr<Plan> PlanMaker::MakePlanFor(PlanRequest request, const std::vector<int>& devices,
                                            const MeasuredCluster& cluster) const {
  absl::StatusOr<Candidates> plans = CandidatesFor(request, devices, cluster);
  if (inputs_.recomputes && LimitsMemory(cluster)) {
    absl::StatusOr<Candidates> again =
        RecomputingCandidatesFor(std::move(request), devices, cluster);
    if (plans.ok() && again.ok() && !cluster.times.empty()) {
      RUNNEL_RETURN_IF_ERROR(TakeFaster(*std::move(again), cluster, *plans));
    } else if (!plans.ok() && again.ok()) {
      plans = std::move(again);
    }
  }
  RUNNEL_RETURN_IF_ERROR(plans.status());
  return Choose(*plans, cluster);
}

absl::StatusOr<Plan> PlanMaker::Choose(const Candidates& plans,
                                       const MeasuredCluster& cluster) const {
  if (!plans.roomy.has_value()) return plans.lean;
  RUNNEL_ASSIGN_OR_RETURN(const double with, PeriodSeconds(*plans.roomy, cluster));
  RUNNEL_ASSIGN_OR_RETURN(const double without, PeriodSeconds(plans.lean, cluster));
  return with <= kRoomIsWorth * without ? *plans.roomy : plans.lean;
}

absl::Status PlanMaker::TakeFaster(Candidates again, const MeasuredCluster& cluster,
                                   Candidates& plans) const {
  const auto is_faster = [&](const Plan& plan, const Plan& other) -> absl::StatusOr<bool> {
    RUNNEL_ASSIGN_OR_RETURN(const double with, PeriodSeconds(plan, cluster));
    RUNNEL_ASSIGN_OR_RETURN(const double without, PeriodSeconds(other, cluster));
    return with < kFasterForRecompute * without;
  };
  RUNNEL_ASSIGN_OR_RETURN(const Plan chosen, Choose(plans, cluster));
  RUNNEL_ASSIGN_OR_RETURN(const bool is_lean_faster, is_faster(again.lean, plans.lean));
  if (is_lean_faster) plans.lean = std::move(again.lean);
  if (!again.roomy.has_value()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const bool is_roomy_faster, is_faster(*again.roomy, chosen));
  if (is_roomy_faster) plans.roomy = std::move(again.roomy);
  return absl::OkStatus();
}

absl::StatusOr<PlanMaker::Candidates> PlanMaker::RecomputingCandidatesFor(
    PlanRequest request, const std::vector<int>& devices, const MeasuredCluster& cluster) const {
  ModelSpec model = inputs_.model;
  for (LayerSpec& layer : model.layers) layer.recompute = true;
  request.model = &model;
  RUNNEL_ASSIGN_OR_RETURN(Candidates plans, CandidatesFor(request, devices, cluster));
  const auto where_needed = [&](Plan plan, int64_t copies) -> absl::StatusOr<Plan> {
    PlanRequest checked = request;
    checked.state_copies = copies;
    RUNNEL_RETURN_IF_ERROR(AddCodecsOf(plan, inputs_.codecs.bits.epochs, checked));
    return RecomputeWhereNeeded(std::move(checked), std::move(plan), inputs_.model, cluster);
  };
  RUNNEL_ASSIGN_OR_RETURN(plans.lean, where_needed(std::move(plans.lean), request.state_copies));
  if (plans.roomy.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(plans.roomy, where_needed(*std::move(plans.roomy), kStateCopies));
  }
  return plans;
}

bool PlanMaker::WantsCopies(const Plan& plan, const MeasuredCluster& cluster) const {
  return plan.stages.size() > 1 && inputs_.replicates && !cluster.times.empty() &&
         LimitsMemory(cluster);
}

absl::StatusOr<PlanMaker::Candidates> PlanMaker::CandidatesFor(
    PlanRequest request, const std::vector<int>& devices, const MeasuredCluster& cluster) const {
  RUNNEL_ASSIGN_OR_RETURN(Plan lean, FittingPlanFor(request, devices, cluster));
  Candidates plans = {std::move(lean), std::nullopt};
  if (!WantsCopies(plans.lean, cluster)) return plans;
  request.state_copies = kStateCopies;
  PlanRequest checked = request;
  RUNNEL_RETURN_IF_ERROR(AddCodecsOf(plans.lean, inputs_.codecs.bits.epochs, checked));
  if (CheckMemory(checked, plans.lean, cluster.memory).ok()) {
    plans.roomy = plans.lean;
  } else if (absl::StatusOr<Plan> roomy = FittingPlanFor(request, devices, cluster); roomy.ok()) {
    plans.roomy = *std::move(roomy);
  }
  return plans;
}

absl::StatusOr<Plan> PlanMaker::AnyPlanFor(PlanRequest request, const std::vector<int>& devices,
                                           const MeasuredCluster& cluster) const {
  if (cluster.times.empty()) return runnel::MakePlan(request);
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost cost, MakeCost(devices, cluster.times));
  request.compute = &cost;
  if (!inputs_.codecs.follow_links) return runnel::MakePlan(request);
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan fitted, PlanWithBits(inputs_.codecs.bits, std::move(request)));
  return std::move(fitted.plan);
}

absl::StatusOr<Plan> PlanMaker::RefitCodecs(const Plan& plan,
                                            const MeasuredCluster& cluster) const {
  const std::vector<int> devices = plan.sole_devices();
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, RequestFor(devices, cluster));
  const ModelSpec recomputing = WithRecompute(inputs_.model, plan);
  request.model = &recomputing;
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost cost, MakeCost(devices, TimesOf(plan, cluster.times)));
  request.compute = &cost;
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan fitted, FitBits(inputs_.codecs.bits, request, plan));
  return std::move(fitted.plan);
}

template <typename CostFn>
std::invoke_result_t<CostFn, const PipelineModel&, const Placement&> PlanMaker::CostOf(
    const Plan& plan, const MeasuredCluster& cluster, CostFn cost_of) const {
  const std::vector<int> devices = plan.sole_devices();
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, RequestFor(devices, cluster));
  RUNNEL_RETURN_IF_ERROR(AddCodecsOf(plan, inputs_.codecs.bits.epochs, request));
  const ModelSpec recomputing = WithRecompute(inputs_.model, plan);
  request.model = &recomputing;
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost cost, MakeCost(devices, TimesOf(plan, cluster.times)));
  request.compute = &cost;
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
  RUNNEL_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(request, model, plan));
  return cost_of(model, placement);
}

absl::StatusOr<PlanRating> PlanMaker::Rate(const Plan& plan, const MeasuredCluster& cluster) const {
  const auto rate = [](const PipelineModel& model,
                       const Placement& placement) -> absl::StatusOr<PlanRating> {
    RUNNEL_ASSIGN_OR_RETURN(const double period_seconds, SimulatedPeriod(model, placement));
    return PlanRating{period_seconds, ChargedPeriod(model, placement, period_seconds),
                      AddedNoise(model, placement), NoiseByLink(model, placement),
                      StalenessCharge(model, placement)};
  };
  return CostOf(plan, cluster, rate);
}

absl::StatusOr<double> PlanMaker::PeriodSeconds(const Plan& plan,
                                                const MeasuredCluster& cluster) const {
  return CostOf(plan, cluster, SimulatedPeriod);
}

absl::StatusOr<double> PlanMaker::SecondsBetweenBarriers(const Plan& plan,
                                                         const MeasuredCluster& cluster,
                                                         int64_t micro_batches) const {
  const auto cost = [&](const PipelineModel& model,
                        const Placement& placement) -> absl::StatusOr<double> {
    SimulatedPipeline pipeline = ToPipeline(model, placement);
    pipeline.micro_batches = std::min(micro_batches, kMostSimulated);
    pipeline.drain_every = model.drain_every;
    RUNNEL_ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(pipeline));
    return static_cast<double>(run.total_ns) * 1e-9 / static_cast<double>(pipeline.micro_batches);
  };
  return CostOf(plan, cluster, cost);
}

PlanBandwidth PlanMaker::AssumedBandwidth(const Plan& plan, const LinkRates& rates) const {
  PlanBandwidth bandwidth;
  bandwidth.source = rates.empty() ? inputs_.links.source : "measured";
  const std::vector<std::vector<LinkSpeed>> speeds = SpeedsBetween(plan.sole_devices(), rates);
  for (size_t i = 0; i + 1 < plan.stages.size(); ++i) {
    const LinkSpeed& down = speeds[i][i + 1];
    const LinkSpeed& up = speeds[i + 1][i];
    bandwidth.links.push_back({down.rate, up.rate, (down.delay_seconds + up.delay_seconds) / 2});
  }
  return bandwidth;
}

std::string BandwidthText(const PlanBandwidth& bandwidth) {
  const auto text = [](LinkRate rate) {
    return rate.is_set() ? absl::StrFormat("%.4g Mbps", rate.mbps()) : std::string("full speed");
  };
  const auto is_limited = [](const PlanBandwidth::Link& link) {
    return link.forward.is_set() || link.backward.is_set();
  };
  // Of workers on one host there is nothing to say.
  if (bandwidth.source != "none" &&
      std::none_of(bandwidth.links.begin(), bandwidth.links.end(), is_limited))
    return "";
  std::vector<std::string> links;
  for (const PlanBandwidth::Link& link : bandwidth.links) {
    std::string& line = links.emplace_back(
        absl::StrCat(text(link.forward), " down and ", text(link.backward), " up"));
    if (link.delay_seconds >= kShownDelaySeconds)
      absl::StrAppendFormat(&line, " after %.3g ms", link.delay_seconds * 1e3);
  }
  if (links.empty()) return "";
  if (bandwidth.source == "none") return "links: not measured yet, assumed fast";
  return absl::StrCat("links taken for ", absl::StrJoin(links, ", "), " (", bandwidth.source, ")");
}

}  // namespace runnel
