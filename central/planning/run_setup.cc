#include "central/planning/run_setup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/settings/codec_settings.h"
#include "compress/bit_schedule.h"
#include "partition/plan_builder.h"
#include "partition/zoo/zoo.h"
#include "predictor/cost/measured_cost.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control.h"

namespace runnel {
namespace {

// Batch norm's variance of a single sample would be nothing.
constexpr int64_t kMinSamplesWithBatchNorm = 2;
// TCP's payload in a full packet of Ethernet, headers and all.
constexpr double kPacketPayloadShare = 1448.0 / 1514;
// Best of those measured for caps that hide links (README, figures; all of the way diverges).
constexpr double kRaisedLookAhead = 0.5;
// Processor time of a worker for a micro-batch beside computing and coding, of one end for a frame
// and its acknowledgement, for a byte on a link and for one that is fed, as on an x86-64 server
// (hosts of the lab, 20 kB to 2 MB a micro-batch at 100 Mbps, packets of 1500 bytes).
constexpr double kMicroBatchProcessorSeconds = 0.9e-3;
constexpr double kFrameProcessorSeconds = 0.15e-3;
constexpr double kLinkByteProcessorSeconds = 2e-9;
constexpr double kFeedByteProcessorSeconds = 0.8e-9;

absl::string_view DefaultDataset(absl::string_view model) {
  for (const ModelRow& row : BuiltinModels()) {
    if (row.name == model) return row.default_dataset;
  }
  return "";
}

absl::Status CheckData(const RunSetup& setup) {
  for (const Dataset* split : {setup.data.train.get(), setup.data.test.get()}) {
    if (!(split->sample_shape() == setup.model.input)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--dataset ", setup.settings.dataset, ": its samples are ",
                       split->sample_shape().ToString(), ", model ", setup.model.name, " takes ",
                       setup.model.input.ToString()));
    }
    if (split->classes() != setup.model.classes) {
      return absl::InvalidArgumentError(absl::StrCat("--dataset ", setup.settings.dataset, ": has ",
                                                     split->classes(), " classes, model ",
                                                     setup.model.name, " ", setup.model.classes));
    }
  }
  return absl::OkStatus();
}

// What can be said about the pipeline before the workers are there.
absl::Status CheckStages(const RunSetup& setup) {
  if (setup.plain_loop) return absl::OkStatus();
  if (setup.workers > setup.model.layer_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        setup.workers, " stages cannot be cut from the ", setup.model.layer_count(), " layers of ",
        setup.model.name, ": ask for at most ", setup.model.layer_count(), " workers"));
  }
  const std::vector<int64_t>& caps = setup.settings.caps;
  if (!caps.empty() && static_cast<int>(caps.size()) != setup.workers) {
    return absl::InvalidArgumentError(absl::StrCat("--caps ", absl::StrJoin(caps, ","), ": ",
                                                   caps.size(), " caps for ", setup.workers,
                                                   " stages"));
  }
  return absl::OkStatus();
}

// What is done against staleness needs a schedule that has some.
absl::Status CheckStaleness(const RunSettings& settings, const ScheduleRow& schedule) {
  if (!schedule.drains_each_step) return absl::OkStatus();
  const std::pair<bool, const char*> flags[] = {
      {settings.look_ahead > 0, "--look-ahead"},
      {settings.aggregate_every != 0, "--aggregate-every"},
      {settings.stale_rate_steps > 0, "--stale-rate-steps"},
  };
  for (const auto& [given, flag] : flags) {
    if (!given) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": schedule ", settings.schedule,
                     " has no stale weights; leave it out, or use async_1f1b"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingSettings> TrainingOf(const RunSettings& settings, const ModelSpec& model,
                                            int64_t samples) {
  TrainingSettings training;
  training.seed = static_cast<uint64_t>(settings.seed);
  training.dataset_samples = samples;
  training.batch_size = settings.batch_size;
  training.micro_batches = settings.micro_batches;
  training.min_samples = model.has_batch_norm() ? kMinSamplesWithBatchNorm : 1;
  training.eval_batch_size = settings.eval_batch_size;
  training.learning_rate = settings.lr;
  training.momentum = settings.momentum;
  training.weight_decay = settings.weight_decay;
  training.look_ahead = std::max(settings.look_ahead, 0.0);
  training.raised_look_ahead = training.look_ahead;
  training.aggregate_every = settings.aggregate_every;
  training.milestones = settings.milestones;
  training.milestone_factor = settings.milestone_factor;
  if (!settings.gradient_bits.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(training.gradient_bits, ParseGradientBits(settings.gradient_bits));
  }
  return training;
}

BandwidthBits BitsOf(const RunSetup& setup) {
  const RunSettings& settings = setup.settings;
  return {settings.model, CodecFamilyOf(settings.codec_forward, "hadamard"),
          CodecFamilyOf(settings.codec_backward, "hadamard"), ExactCodec(setup.format),
          settings.epochs};
}

}  // namespace

absl::StatusOr<RunSetup> SetUpRun(RunSettings settings) {
  RUNNEL_RETURN_IF_ERROR(CheckSettings(settings));
  RunSetup setup;
  RUNNEL_ASSIGN_OR_RETURN(setup.model, MakeModel(settings.model));
  RUNNEL_ASSIGN_OR_RETURN(setup.format, FormatOf(settings));
  if (absl::Status status = CheckFormat(setup.model, setup.format); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--recipe ", settings.recipe, ": ", status.message()));
  }
  setup.note = IgnoredSettings(settings, setup.format);
  RUNNEL_ASSIGN_OR_RETURN(setup.policy, FindPolicy(settings.policy));
  RUNNEL_ASSIGN_OR_RETURN(setup.schedule, FindSchedule(settings.schedule));
  if (!setup.schedule->drains_each_step && settings.micro_batches > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--micro-batches ", settings.micro_batches, ": schedule ", settings.schedule,
                     " steps after each micro-batch; use 1, or sync_1f1b"));
  }
  RUNNEL_RETURN_IF_ERROR(CheckStaleness(settings, *setup.schedule));
  setup.settings = WithDefaults(std::move(settings), setup.model, DefaultDataset(setup.model.name),
                                setup.schedule->default_micro_batches, setup.format);
  RUNNEL_RETURN_IF_ERROR(SettleCodecs(setup.format, setup.settings));
  if (BitsFollowLinks(setup.settings)) {
    RUNNEL_ASSIGN_OR_RETURN(setup.codec_seconds_per_byte,
                            MeasureCodecs(BitsOf(setup), MonotonicClock()));
  }
  setup.plain_loop = setup.settings.local_workers == 0;
  setup.workers = setup.plain_loop
                      ? 1
                      : static_cast<int>(setup.settings.local_workers + setup.settings.workers);
  RUNNEL_RETURN_IF_ERROR(CheckStages(setup));

  RUNNEL_ASSIGN_OR_RETURN(const DatasetRow* dataset, FindDataset(setup.settings.dataset));
  if (dataset->needs_data_dir && setup.settings.data_dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dataset ", dataset->name, ": needs --data-dir, the folder with its files"));
  }
  RUNNEL_ASSIGN_OR_RETURN(setup.data, dataset->load(setup.settings.data_dir,
                                                    static_cast<uint64_t>(setup.settings.seed)));
  RUNNEL_RETURN_IF_ERROR(CheckData(setup));

  RUNNEL_ASSIGN_OR_RETURN(setup.training,
                          TrainingOf(setup.settings, setup.model, setup.data.train->size()));
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup.training));
  setup.barriers = {.every = setup.settings.barrier_every,
                    .eval_every_epochs = setup.settings.eval_every,
                    .steps_per_epoch = batching.steps_per_epoch(),
                    .epochs = setup.settings.epochs};
  // FTPipeHD looks at its first measurements at batch 10, then at every barrier.
  constexpr int64_t kFirstLook = 10;
  if (Replans(setup)) setup.barriers.policy_point = kFirstLook;
  setup.total_steps = batching.steps_per_epoch() * setup.settings.epochs;
  if (setup.settings.stale_rate_steps == -1) {
    setup.settings.stale_rate_steps =
        setup.schedule->drains_each_step ? 0 : (setup.total_steps + 1) / 2;
  }
  setup.training.stale_rate_steps = setup.settings.stale_rate_steps;
  const bool helps_raised = setup.settings.look_ahead == -1 && !setup.schedule->drains_each_step &&
                            !setup.format.scaled() && setup.settings.aggregate_every == 0;
  if (helps_raised) setup.training.raised_look_ahead = kRaisedLookAhead;
  setup.stop_step = setup.settings.max_batches > 0
                        ? std::min(setup.settings.max_batches, setup.total_steps)
                        : setup.total_steps;
  return setup;
}

namespace {

// What the user says of every link.
LinkSpeed GivenSpeed(const RunSetup& setup) {
  const RunSettings& settings = setup.settings;
  // The transport's own shaping counts the bytes of frames, a network those of its packets too.
  return {settings.plan_mbps > 0 ? settings.plan_mbps * kPacketPayloadShare : settings.link_mbps,
          settings.link_delay_ms * 1e-3};
}

std::vector<std::vector<LinkSpeed>> Speeds(const RunSetup& setup, const std::vector<int>& devices,
                                           const LinkRates& rates) {
  std::vector<std::vector<LinkSpeed>> speeds = SpeedsOf(rates, devices, GivenSpeed(setup));
  for (const AssumedLink& link : setup.assumed_links) {
    for (size_t from = 0; from < devices.size(); ++from) {
      for (size_t to = 0; to < devices.size(); ++to) {
        if (devices[from] != link.from || devices[to] != link.to) continue;
        speeds[from][to].megabits_per_second = link.mbps;
        speeds[to][from].megabits_per_second = link.mbps;
      }
    }
  }
  return speeds;
}

std::vector<int> DevicesOf(const Plan& plan) {
  std::vector<int> devices;
  for (const StagePlan& stage : plan.stages) devices.push_back(stage.device.value());
  return devices;
}

// Without times of computation, which are borrowed.
absl::StatusOr<PlanRequest> RequestFor(const RunSetup& setup, const std::vector<int>& devices,
                                       const LinkRates& rates) {
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup.training));
  PlanRequest request;
  request.model = &setup.model;
  request.policy = setup.policy;
  request.schedule = setup.schedule;
  for (int device : devices) request.devices.push_back(DeviceId(device));
  request.micro_batches = setup.settings.micro_batches;
  request.micro_batch_size = batching.MicroBatchSizes().front();
  request.codec_forward = setup.settings.codec_forward;
  request.codec_backward = setup.settings.codec_backward;
  RUNNEL_ASSIGN_OR_RETURN(request.encoded_forward,
                          MeanEncodedBytes(setup.settings.codec_forward, setup.settings.epochs));
  RUNNEL_ASSIGN_OR_RETURN(request.encoded_backward,
                          MeanEncodedBytes(setup.settings.codec_backward, setup.settings.epochs));
  request.link_speeds = Speeds(setup, devices, rates);
  request.caps = setup.settings.caps;
  request.looks_ahead = setup.training.look_ahead > 0;
  request.raised_looks_ahead = setup.training.raised_look_ahead > 0;
  return request;
}

// Coding takes a device as much longer than this host, which has device 0, as training does, and so
// does the transport.
void AddDeviceCosts(const RunSetup& setup, const std::vector<DeviceTimes>& times,
                    const Conditions& conditions, PlanRequest& request) {
  std::vector<double> now;
  for (const DeviceTimes& one : times) now.push_back(one.Sum());
  const std::vector<double>& profiled =
      conditions.profiled_seconds.empty() ? now : conditions.profiled_seconds;
  const auto to_here = [](const std::vector<double>& seconds, int device) {
    return seconds[0] > 0 ? seconds[device] / seconds[0] : 1;
  };
  const std::vector<double>& shares = conditions.processor_shares;
  for (DeviceId device : request.devices) {
    DeviceCost& cost = request.device_costs.emplace_back();
    if (BitsFollowLinks(setup.settings))
      cost.codec_seconds_per_byte = to_here(now, device.value()) * setup.codec_seconds_per_byte;
    if (shares.empty() || shares[device.value()] >= kWholeProcessor) continue;
    cost.shares_processor = true;
    const double slower = to_here(profiled, device.value()) / shares[0];
    cost.micro_batch_seconds = slower * kMicroBatchProcessorSeconds;
    cost.frame_seconds = slower * kFrameProcessorSeconds;
    cost.link_byte_seconds = slower * kLinkByteProcessorSeconds;
    cost.feed_byte_seconds = slower * kFeedByteProcessorSeconds;
  }
}

absl::StatusOr<MeasuredCost> CostOf(const std::vector<int>& devices,
                                    const std::vector<DeviceTimes>& times) {
  std::vector<DeviceTimes> chosen;
  for (int device : devices) chosen.push_back(times[device]);
  return MeasuredCost::Create(std::move(chosen));
}

}  // namespace

absl::StatusOr<Plan> PlanFor(const RunSetup& setup, Generation generation,
                             const std::vector<int>& devices, const std::vector<DeviceTimes>& times,
                             const Conditions& conditions) {
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, RequestFor(setup, devices, conditions.rates));
  request.generation = generation;
  if (times.empty()) return MakePlan(request);
  AddDeviceCosts(setup, times, conditions, request);
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost cost, CostOf(devices, times));
  request.compute = &cost;
  if (!BitsFollowLinks(setup.settings)) return MakePlan(request);
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan fitted, PlanWithBits(BitsOf(setup), std::move(request)));
  return std::move(fitted.plan);
}

bool NeedsProfile(const RunSetup& setup) {
  if (setup.plain_loop) return false;
  return setup.policy->needs_profile || (setup.workers > 1 && BitsFollowLinks(setup.settings));
}

bool MovesLayers(const RunSetup& setup) {
  if (setup.plain_loop || setup.workers < 2 || !setup.policy->needs_profile) return false;
  return setup.settings.replan == "auto" ? setup.policy->replans : setup.settings.replan == "on";
}

bool Replans(const RunSetup& setup) {
  const bool bits_move = !setup.plain_loop && setup.workers > 1 &&
                         BitsFollowLinks(setup.settings) && setup.settings.replan != "off";
  return bits_move || MovesLayers(setup);
}

absl::StatusOr<Plan> RefitBits(const RunSetup& setup, const Plan& plan,
                               const std::vector<DeviceTimes>& times,
                               const Conditions& conditions) {
  const std::vector<int> devices = DevicesOf(plan);
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, RequestFor(setup, devices, conditions.rates));
  AddDeviceCosts(setup, times, conditions, request);
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost cost, CostOf(devices, times));
  request.compute = &cost;
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan fitted, FitBits(BitsOf(setup), request, plan));
  return std::move(fitted.plan);
}

double CodingErrorOf(const RunSetup& setup, const Plan& plan) {
  return CodingError(plan, setup.settings.epochs).value_or(0);
}

PlanBandwidth BandwidthOf(const RunSetup& setup, const Plan& plan, const LinkRates& rates) {
  const RunSettings& settings = setup.settings;
  PlanBandwidth bandwidth;
  bandwidth.source = settings.plan_mbps > 0   ? "--plan-mbps"
                     : settings.link_mbps > 0 ? "--link-mbps"
                                              : "none";
  if (!rates.empty()) bandwidth.source = "measured";
  const std::vector<std::vector<LinkSpeed>> speeds = Speeds(setup, DevicesOf(plan), rates);
  for (size_t i = 0; i + 1 < plan.stages.size(); ++i) {
    bandwidth.links.push_back(
        {speeds[i][i + 1].megabits_per_second, speeds[i + 1][i].megabits_per_second});
  }
  return bandwidth;
}

std::string BandwidthText(const PlanBandwidth& bandwidth) {
  const auto text = [](double mbps) {
    return mbps > 0 ? absl::StrFormat("%.4g Mbps", mbps) : std::string("unlimited");
  };
  std::vector<std::string> links;
  for (const LinkMbps& link : bandwidth.links) {
    links.push_back(absl::StrCat(text(link.forward), " down and ", text(link.backward), " up"));
  }
  if (links.empty()) return "";
  return absl::StrCat("links taken for ", absl::StrJoin(links, ", "), " (",
                      bandwidth.source == "none" ? "nothing given or measured" : bandwidth.source,
                      ")");
}

absl::StatusOr<double> PredictPeriod(const RunSetup& setup, const Plan& plan,
                                     const std::vector<DeviceTimes>& times,
                                     const Conditions& conditions) {
  const std::vector<int> devices = DevicesOf(plan);
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, RequestFor(setup, devices, conditions.rates));
  RUNNEL_RETURN_IF_ERROR(AddCodecsOf(plan, setup.settings.epochs, request));
  AddDeviceCosts(setup, times, conditions, request);
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost cost, CostOf(devices, times));
  request.compute = &cost;
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
  RUNNEL_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(request, model, plan));
  return SimulatedPeriod(model, placement);
}

}  // namespace runnel
