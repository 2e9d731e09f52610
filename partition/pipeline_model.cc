#include "partition/pipeline_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/raised_cap.h"

namespace runnel {
namespace {

// Fill phase of the pipeline, in units of stage 0's cap.
constexpr int64_t kFillingRounds = 16;

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

WayTimes ToTimes(const WaySeconds& way, int medium) {
  return {Nanoseconds(way.encode), Nanoseconds(way.send), Nanoseconds(way.delay),
          Nanoseconds(way.decode), medium};
}

bool IsSeconds(double value) { return std::isfinite(value) && value >= 0; }

bool IsCost(const FrameCost& cost) {
  return IsSeconds(cost.frame_seconds) && IsSeconds(cost.byte_seconds);
}

std::string TextOf(const FrameCost& cost) {
  return absl::StrCat(cost.frame_seconds, " s a frame and ", cost.byte_seconds, " s a byte");
}

absl::Status CheckDevice(const PipelineModel& model, size_t index) {
  const DeviceCost& device = model.devices[index];
  if (device.host < -1 || device.host >= static_cast<int>(model.host_processors.size()) ||
      !(device.measured_share > 0 && std::isfinite(device.measured_share))) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline model: device ", index, ": host ", device.host, " of ",
                     model.host_processors.size(), ", measured with ", device.measured_share,
                     " of a processor cannot be"));
  }
  if (device.forward_share >= 0 && device.input_gradient_share >= 0 &&
      device.forward_share + device.input_gradient_share <= 1 &&
      IsSeconds(device.codec_seconds_per_byte) && IsSeconds(device.micro_batch_seconds) &&
      IsCost(device.network) && IsCost(device.within_host) && IsCost(device.feed) &&
      IsSeconds(device.tensor_byte_seconds) && device.memory_limit_bytes >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "pipeline model: device ", index, ": shares ", device.forward_share, " and ",
      device.input_gradient_share, ", ", device.codec_seconds_per_byte, " s a coded byte, ",
      device.micro_batch_seconds, " s a micro-batch, ", TextOf(device.network), " on a network, ",
      TextOf(device.within_host), " within the host, ", device.tensor_byte_seconds,
      " s a tensor's byte there, ", TextOf(device.feed), " that is fed, memory limit ",
      device.memory_limit_bytes, " cannot be"));
}

// Processor seconds of the device's computation that a frame takes, and the tensor in it.
double FrameSeconds(const DeviceCost& device, const LinkSpeed& speed, double bytes,
                    double tensor_bytes) {
  if (!device.shares_processor) return 0;
  if (!speed.within_host) return device.network.Seconds(bytes);
  return device.within_host.Seconds(bytes) + device.tensor_byte_seconds * tensor_bytes;
}

// Coding moves from a lane of its own to the computation's.
void ShareProcessor(const DeviceCost& device, double& coding, double& codes) {
  if (device.shares_processor) codes = std::exchange(coding, 0);
}

// Of `kept` micro-batches in a row, behind how many but the last a step may end.
int64_t MostStepsAmong(const PipelineModel& model, int64_t kept) {
  const auto steps = [&model](int64_t micro_batches) {
    return (micro_batches + model.step_every - 1) / model.step_every;
  };
  const int64_t between = kept - 1;
  if (model.short_step == 0 || between <= model.short_step) return steps(between);
  return 1 + steps(between - model.short_step);
}

}  // namespace

WaySeconds WayCost(const PipelineModel& model, int codec, int layer, int from, int to,
                   Direction direction) {
  const bool forward = direction == Direction::kForward;
  const CodecCost& cost = model.codecs[codec];
  const int sender = forward ? from : to;
  const int receiver = forward ? to : from;
  const LinkSpeed& speed = model.speeds[sender][receiver];
  WaySeconds way;
  way.delay = speed.delay_seconds;
  // An acknowledgement alone.
  if (!forward && layer < model.frozen_front) return way;
  const double bytes = static_cast<double>((forward ? cost.down_bytes : cost.up_bytes)[layer]) *
                       (forward ? cost.down_share : cost.up_share);
  const auto tensor_bytes = static_cast<double>(model.raw_bytes[layer]);
  const double coded = (forward ? cost.forward_works : cost.backward_works) ? tensor_bytes : 0;
  way.encode = coded * model.devices[sender].codec_seconds_per_byte;
  way.decode = coded * model.devices[receiver].codec_seconds_per_byte;
  way.send = speed.SendSeconds(bytes);
  way.sender_takes = FrameSeconds(model.devices[sender], speed, bytes, tensor_bytes);
  way.receiver_takes = FrameSeconds(model.devices[receiver], speed, bytes, tensor_bytes);
  ShareProcessor(model.devices[sender], way.encode, way.sender_codes);
  ShareProcessor(model.devices[receiver], way.decode, way.receiver_codes);
  return way;
}

double OverheadSeconds(const PipelineModel& model, int device, bool is_first, bool is_last) {
  const DeviceCost& cost = model.devices[device];
  if (!cost.shares_processor) return 0;
  const auto both = [&model](const FrameCost& feed, bool samples, bool labels) {
    return (samples ? feed.Seconds(static_cast<double>(model.input_bytes)) : 0) +
           (labels ? feed.Seconds(static_cast<double>(model.label_bytes)) : 0);
  };
  const std::vector<LinkSpeed>& from_central = model.speeds[0];
  const bool is_near = from_central[static_cast<size_t>(device)].within_host;
  const double received = both(is_near ? cost.within_host : cost.feed, is_first, is_last);
  if (device != 0) return cost.micro_batch_seconds + received;
  // Who else is fed is not known here: others on another host cost central the network's price.
  const bool are_near = std::all_of(from_central.begin(), from_central.end(),
                                    [](const LinkSpeed& speed) { return speed.within_host; });
  return cost.micro_batch_seconds + received +
         both(are_near ? cost.within_host : cost.feed, true, true);
}

double ComputeSeconds(const PipelineModel& model, int device, int first_layer, int last_layer) {
  return model.compute->StageSeconds(device, first_layer, last_layer) *
         model.devices[device].measured_share;
}

SplitSeconds StageSplitSeconds(const PipelineModel& model, int device, int first_layer,
                               int last_layer) {
  SplitSeconds seconds;
  const int last_frozen = std::min(last_layer, model.frozen_front - 1);
  if (last_frozen >= first_layer)
    seconds.frozen = ComputeSeconds(model, device, first_layer, last_frozen);
  const double all = last_frozen == last_layer
                         ? seconds.frozen
                         : ComputeSeconds(model, device, first_layer, last_layer);
  seconds.trained = std::max(0.0, all - seconds.frozen);
  return seconds;
}

bool PassesGradient(const PipelineModel& model, int first_layer) {
  return first_layer > model.frozen_front;
}

StageHold HoldOf(const PipelineModel& model, const StageEnds& ends) {
  StageHold hold;
  for (int layer = ends.first_layer; layer <= ends.last_layer; ++layer) {
    hold.layers += model.memory[layer];
  }
  if (!PassesGradient(model, ends.first_layer)) hold.layers.between_bytes = 0;
  const int above = ends.first_layer - 1;
  hold.input_bytes = above < 0 ? model.input_bytes : model.raw_bytes[above];
  const auto add_frames = [&](int codec, int layer) {
    if (codec < 0) return;
    hold.frame_bytes += model.codecs[codec].down_bytes[layer];
    hold.kept_bytes += model.codecs[codec].KeptBytes(layer);
    if (layer >= model.frozen_front) hold.frame_bytes += model.codecs[codec].up_bytes[layer];
  };
  add_frames(ends.codec_above, above);
  add_frames(ends.codec_below, ends.last_layer);
  return hold;
}

int64_t StageMemoryBytes(const PipelineModel& model, const StageHold& hold, const StageOrder& order,
                         int64_t usual_cap) {
  const bool is_raised = IsRaised(order.cap, usual_cap, MostStepsAmong(model, order.cap));
  const bool looks_ahead = is_raised ? model.raised_looks_ahead : model.looks_ahead;
  int64_t kept = order.cap + order.deferred_weight_gradients;
  // No more than a step has.
  if (order.deferred_weight_gradients > 0 && model.drain_every > 0) {
    kept = std::max(order.cap, std::min(kept, model.drain_every));
  }
  // Otherwise the youngest in flight uses the newest, as does a single one in any case; and
  // micro-batches of one step share a version.
  int64_t versions = looks_ahead && kept > 1 ? kept : MostStepsAmong(model, kept);
  if (model.drain_every > 0) versions = 0;
  const int64_t stashes = kept + std::min(order.deferred_weight_gradients, kept);
  const bool has_neighbour = hold.frame_bytes > 0;
  return hold.layers.state_bytes + hold.layers.working_bytes +
         (1 + order.deferred_weight_gradients) * hold.layers.between_bytes +
         (has_neighbour ? hold.layers.copy_bytes : 0) + versions * hold.layers.version_bytes +
         stashes * hold.layers.stash_bytes + kept * hold.input_bytes +
         order.cap * hold.frame_bytes + hold.kept_bytes;
}

bool FitsMemory(const PipelineModel& model, const Placement& placement) {
  const size_t stages = placement.order.size();
  const std::vector<StageOrder> orders = StageOrders(model.deferred, placement.caps);
  int first = 0;
  for (size_t i = 0; i < stages; ++i) {
    const int64_t limit = model.devices[placement.order[i]].memory_limit_bytes;
    const StageEnds ends = {first, placement.last_layer[i], i > 0 ? placement.codecs[i - 1] : -1,
                            i + 1 < stages ? placement.codecs[i] : -1};
    if (limit > 0 && StageMemoryBytes(model, HoldOf(model, ends), orders[i],
                                      static_cast<int64_t>(stages - i)) > limit) {
      return false;
    }
    first = placement.last_layer[i] + 1;
  }
  return true;
}

SimulatedPipeline ToPipeline(const PipelineModel& model, const Placement& placement) {
  SimulatedPipeline pipeline;
  pipeline.caps = placement.caps;
  pipeline.host_processors = model.host_processors;
  if (model.deferred != nullptr) {
    pipeline.deferred_weight_gradients = model.deferred(placement.caps);
  }
  int first = 0;
  for (size_t i = 0; i < placement.order.size(); ++i) {
    const int device = placement.order[i];
    const int last = placement.last_layer[i];
    const DeviceCost& cost = model.devices[device];
    const SplitSeconds seconds = StageSplitSeconds(model, device, first, last);
    StageTimes times;
    times.forward_ns = Nanoseconds(seconds.frozen + seconds.trained * cost.forward_share);
    times.input_gradient_ns = Nanoseconds(seconds.trained * cost.input_gradient_share);
    times.weight_gradient_ns = std::max<int64_t>(
        0, Nanoseconds(seconds.total()) - times.forward_ns - times.input_gradient_ns);
    times.forward_only = last < model.frozen_front;
    times.host = cost.host;
    // Work beside the computation delays no message, but it takes processor time.
    (times.forward_only ? times.forward_ns : times.weight_gradient_ns) +=
        Nanoseconds(OverheadSeconds(model, device, i == 0, i + 1 == placement.order.size()));
    pipeline.stages.push_back(times);
    first = last + 1;
  }
  for (size_t i = 0; i + 1 < placement.order.size(); ++i) {
    const auto way = [&](Direction direction) {
      return WayCost(model, placement.codecs[i], placement.last_layer[i], placement.order[i],
                     placement.order[i + 1], direction);
    };
    const WaySeconds down = way(Direction::kForward);
    const WaySeconds up = way(Direction::kBackward);
    const int from = placement.order[i];
    const int to = placement.order[i + 1];
    pipeline.links.push_back(
        {ToTimes(down, model.speeds[from][to].medium), ToTimes(up, model.speeds[to][from].medium)});
    StageTimes& above = pipeline.stages[i];
    StageTimes& below = pipeline.stages[i + 1];
    above.forward_ns += Nanoseconds(down.sender_codes);
    above.input_gradient_ns += Nanoseconds(up.receiver_codes);
    (above.forward_only ? above.forward_ns : above.weight_gradient_ns) +=
        Nanoseconds(down.sender_takes + up.receiver_takes);
    below.forward_ns += Nanoseconds(down.receiver_codes);
    below.input_gradient_ns += Nanoseconds(up.sender_codes);
    (below.forward_only ? below.forward_ns : below.weight_gradient_ns) +=
        Nanoseconds(down.receiver_takes + up.sender_takes);
  }
  return pipeline;
}

absl::StatusOr<double> SimulatedPeriod(const PipelineModel& model, const Placement& placement) {
  SimulatedPipeline pipeline = ToPipeline(model, placement);
  const int64_t every = model.drain_every > 0 ? model.drain_every : model.barrier_every;
  double pause_seconds = 0;
  if (model.barrier_every > 0) {
    pause_seconds = model.barrier_pause_seconds / static_cast<double>(model.barrier_every);
  }
  // Beyond these the pipeline is steady.
  const int64_t simulated = std::min(every, kFillingRounds * pipeline.caps[0] + kFillingRounds);
  double steady_ns = 0;
  if (simulated == 0 || simulated < every) {
    RUNNEL_ASSIGN_OR_RETURN(steady_ns, SteadyPeriodNs(pipeline));
    if (simulated == 0) return steady_ns * 1e-9;
  }
  pipeline.micro_batches = simulated;
  RUNNEL_ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(pipeline));
  const double total_ns =
      static_cast<double>(run.total_ns) + static_cast<double>(every - simulated) * steady_ns;
  return total_ns * 1e-9 / static_cast<double>(every) + pause_seconds;
}

std::vector<double> NoiseByLink(const PipelineModel& model, const Placement& placement) {
  std::vector<double> noise;
  for (size_t i = 0; i < placement.codecs.size(); ++i)
    noise.push_back(model.codecs[placement.codecs[i]].NoiseBehind(placement.last_layer[i]));
  return noise;
}

double AddedNoise(const PipelineModel& model, const Placement& placement) {
  double noise = 0;
  for (size_t i = 0; i < placement.codecs.size(); ++i)
    noise += model.codecs[placement.codecs[i]].NoiseBehind(placement.last_layer[i]);
  return noise;
}

double StalenessCharge(const PipelineModel& model, const Placement& placement) {
  if (model.drain_every > 0) return 0;
  const double steps_old =
      static_cast<double>(placement.caps[0] - 1) / static_cast<double>(model.step_every);
  return model.staleness_charge * (steps_old - std::min(steps_old, 1.0) / 2);
}

double ChargedPeriod(const PipelineModel& model, const Placement& placement,
                     double period_seconds) {
  const double noise = AddedNoise(model, placement);
  if (noise > model.noise_budget) return std::numeric_limits<double>::infinity();
  double learning = 1 + noise;
  for (const int codec : placement.codecs)
    learning += model.loss_charge * model.codecs[codec].lossy_directions;
  return period_seconds * (1 + StalenessCharge(model, placement)) *
         std::pow(1 + model.device_charge, static_cast<double>(placement.order.size()) - 1) *
         learning;
}

absl::Status CheckPipelineModel(const PipelineModel& model) {
  const auto wrong = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("pipeline model: ", what));
  };
  const size_t layers = model.raw_bytes.size();
  const size_t devices = model.devices.size();
  if (model.compute == nullptr) {
    return wrong("needs measured layer times; profile the devices first or use policy uniform");
  }
  if (layers == 0 || devices == 0) return wrong("needs devices and layers");
  if (model.memory.size() != layers) return wrong("needs the memory of every layer");
  if (model.codecs.empty()) return wrong("needs a codec");
  for (const CodecCost& codec : model.codecs) {
    if (codec.down_bytes.size() != layers || codec.up_bytes.size() != layers) {
      return wrong(absl::StrCat("codecs ", codec.forward.text(), " and ", codec.backward.text(),
                                " have no size for every layer"));
    }
    if (!codec.noise_behind.empty() && codec.noise_behind.size() != layers)
      return wrong("a codec needs its noise behind every layer");
    if (!IsSeconds(codec.noise) ||
        !std::all_of(codec.noise_behind.begin(), codec.noise_behind.end(), IsSeconds))
      return wrong("a codec's noise must be at least 0");
    for (const double share : {codec.down_share, codec.up_share}) {
      if (!(share > 0 && share <= 1))
        return wrong("of a frame's bytes a share within (0, 1] is sent");
    }
  }
  for (const double processors : model.host_processors) {
    if (!IsSeconds(processors) || processors < kLeastProcessors) {
      return wrong(absl::StrCat("a host needs at least ", kLeastProcessors, " processors, not ",
                                processors));
    }
  }
  if (model.speeds.size() != devices) return wrong("needs the links of every device");
  for (const std::vector<LinkSpeed>& row : model.speeds) {
    if (row.size() != devices) return wrong("needs a link between every two devices");
    for (const LinkSpeed& speed : row) {
      if (!IsSeconds(speed.rate.mbps()) || !IsSeconds(speed.delay_seconds)) {
        return wrong("bandwidths and delays must be finite and at least 0");
      }
      if (speed.hops < 1 || speed.hops > 2) return wrong("a frame is on the air once or twice");
    }
  }
  for (size_t i = 0; i < devices; ++i) {
    if (absl::Status status = CheckDevice(model, i); !status.ok()) return status;
  }
  if (model.max_cap < 1 || model.drain_every < 0 || model.step_every < 1 || model.short_step < 0 ||
      model.short_step >= model.step_every || model.barrier_every < 0 ||
      !IsSeconds(model.barrier_pause_seconds)) {
    return wrong(
        "max_cap must be at least 1; drains, barriers and their pause at least 0; an epoch's last "
        "step shorter than the others, or 0");
  }
  if (!IsSeconds(model.staleness_charge) || !IsSeconds(model.device_charge) ||
      !IsSeconds(model.loss_charge)) {
    return wrong("charges must be at least 0");
  }
  return absl::OkStatus();
}

}  // namespace runnel
