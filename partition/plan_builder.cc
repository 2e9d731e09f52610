#include "partition/plan_builder.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "partition/kept_values.h"
#include "proto/base/model/model_state.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {
namespace {

bool HasProducts(const LayerSpec& layer) {
  return std::any_of(layer.ops.begin(), layer.ops.end(), [](const OpSpec& op) {
    return op.kind == OpKind::kConv || op.kind == OpKind::kLinear;
  });
}

absl::Status CheckRequest(const PlanRequest& request) {
  if (request.model == nullptr || request.policy == nullptr || request.schedule == nullptr) {
    return absl::InvalidArgumentError("plan: needs a model, a policy and a schedule");
  }
  if (request.micro_batches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: ", request.micro_batches, " micro-batches a step; needs at least 1"));
  }
  if (request.micro_batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: micro-batches of ", request.micro_batch_size, " samples; needs at least 1"));
  }
  if (!request.caps.empty() && request.caps.size() != request.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan: ", request.caps.size(), " caps for ",
                                                   request.devices.size(),
                                                   " stages; give one cap a stage or none"));
  }
  std::set<DeviceId> seen;
  for (DeviceId device : request.devices) {
    if (!seen.insert(device).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan: device ", device.value(), " is listed twice"));
    }
  }
  return absl::OkStatus();
}

// Seconds that this share of the payload and its header take.
double FrameSeconds(const LinkSpeed& speed, Bytes payload, double share) {
  return speed.delay_seconds +
         speed.SendSeconds(share * static_cast<double>(payload.value() + kFrameHeaderBytes));
}

absl::StatusOr<std::vector<std::vector<LinkSpeed>>> LinkSpeeds(const PlanRequest& request) {
  const size_t devices = request.devices.size();
  std::vector<std::vector<LinkSpeed>> speeds = request.link_speeds;
  if (speeds.empty()) {
    speeds.assign(devices, std::vector<LinkSpeed>(devices, request.link_speed));
  }
  if (speeds.size() != devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: links of ", speeds.size(), " devices, but there are ", devices));
  }
  for (const std::vector<LinkSpeed>& row : speeds) {
    if (row.size() != devices) {
      return absl::InvalidArgumentError("plan: needs a link between every two devices");
    }
    for (const LinkSpeed& speed : row) {
      const double megabits = speed.rate.mbps();
      const double delay = speed.delay_seconds;
      if (!std::isfinite(megabits) || megabits < 0 || !std::isfinite(delay) || delay < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("plan: link of ", megabits, " Mbit/s and ", delay,
                         " s delay; both must be finite and at least 0 (0 Mbit/s: unlimited)"));
      }
    }
  }
  return speeds;
}

// The pairs that links may have, with the request's own among them, and where that is.
std::vector<CodecChoice> Choices(const PlanRequest& request, int& own) {
  std::vector<CodecChoice> choices = request.codec_choices;
  for (size_t i = 0; i < choices.size(); ++i) {
    own = static_cast<int>(i);
    if (choices[i].forward == request.codecs.forward &&
        choices[i].backward == request.codecs.backward)
      return choices;
  }
  own = static_cast<int>(choices.size());
  choices.push_back(request.codecs);
  return choices;
}

// Whether evaluations take the weights' average, which lies beside them then (--ema, --swa).
bool EvaluatesAverages(const NumberFormat& format) {
  return std::find(format.slots.begin(), format.slots.end(), kAverageSlot) != format.slots.end();
}

// Beside kept codes or values on grids a backward has a few values of a layer in FP32: the gradient
// that comes, the one that it makes, and what is made again.
constexpr int64_t kFloatsAtOnce = 3;

int64_t LargestValue(const LayerInfo& info, const NumberFormat& format) {
  int64_t largest = 0;
  for (const Shape& output : info.op_outputs)
    largest = std::max(largest, ValueBytes(format.activation, output));
  return largest;
}

// Samples of one option after the other read what a group of operators reads for all of them, so that
// codes stand beside the floats that they are made of; and codes that lie two a byte are there whole
// while they are read.
int64_t CodesBesideFloats(const LayerSpec& layer, int code_bits, int64_t float_bytes) {
  const bool has_levels = std::any_of(layer.ops.begin(), layer.ops.end(), [](const OpSpec& op) {
    int levels = 0;
    for (int option = 0; op.kind == OpKind::kGate && option < OptionCount(op); ++option)
      levels += Skips(op, option) ? 0 : 1;
    return levels > 1;
  });
  return has_levels || code_bits < 8 ? float_bytes / static_cast<int64_t>(sizeof(float)) : 0;
}

CodesOfLayer CodesOf(const PlanRequest& request, const LayerSpec& layer) {
  const std::vector<LayerSpec>& layers = request.model->layers;
  return {.kept = request.recipe_memory.kept_codes,
          .bits = request.recipe_memory.code_bits,
          .is_first = std::none_of(layers.data(), &layer, HasProducts),
          .is_last = std::none_of(&layer + 1, layers.data() + layers.size(), HasProducts),
          .reads_samples = &layer == &layers.front()};
}

// Of the results of operators with weights, and about as much of what they read.
int64_t BytesBehindWeights(const LayerSpec& layer, const LayerInfo& info,
                           const NumberFormat& format) {
  int64_t bytes = 0;
  for (size_t op = 0; op < layer.ops.size(); ++op) {
    const OpKind kind = layer.ops[op].kind;
    if (kind == OpKind::kConv || kind == OpKind::kLinear)
      bytes += ValueBytes(format.activation, info.op_outputs[op]);
  }
  return bytes;
}

int64_t WeightsOf(const LayerInfo& info) {
  int64_t elements = 0;
  for (const StateTensorSpec& tensor : info.state)
    elements += tensor.role == TensorRole::kWeight ? tensor.shape.elements() : 0;
  return elements;
}

// forward_only: no gradient passes the layer, so that nothing is kept for one. LayerSpec::recompute:
// what is inside the layer is there once, while its backward runs, though not for all layers at a
// time. LayerSpec::stash: what is kept has that type; a value is there whole while it is read.
LayerMemory MemoryOf(const PlanRequest& request, const LayerSpec& layer, const LayerInfo& info,
                     bool forward_only) {
  const NumberFormat& format = request.format;
  const int64_t state_copies = request.state_copies;
  const auto gradient_bytes = static_cast<int64_t>(SizeOf(format.weight_gradient));
  LayerMemory memory;
  for (const StateTensorSpec& tensor : StateOf(info, format)) {
    const auto element_bytes = static_cast<int64_t>(SizeOf(tensor.dtype));
    const int64_t elements = tensor.shape.elements();
    memory.state_bytes += elements * element_bytes;
    memory.copy_bytes += state_copies * elements * element_bytes;
    if (!IsTrainable(tensor.role) || tensor.frozen) continue;
    const auto slots = static_cast<int64_t>(HasSlots(tensor) ? format.slots.size() : 0);
    const int64_t averages = EvaluatesAverages(format) ? 1 : 0;
    memory.state_bytes += elements * (gradient_bytes + (slots + averages) * element_bytes);
    memory.copy_bytes += state_copies * elements * slots * element_bytes;
    memory.version_bytes += elements * element_bytes;
  }
  if (forward_only) {
    // What a forward works with is taken once.
    memory.state_bytes += LargestValue(info, format);
    return memory;
  }
  const bool narrows = SizeOf(layer.stash) < SizeOf(format.activation);
  const DType kept = narrows ? layer.stash : format.activation;
  const RecipeMemory& recipe = request.recipe_memory;
  const int64_t largest = LargestValue(info, format);
  if (recipe.kept_codes != KeptCodes::kNone) {
    memory.stash_bytes = KeptBytesWithCodes(layer, info, kept, CodesOf(request, layer));
    memory.working_bytes = CodesBesideFloats(layer, recipe.code_bits, largest);
  } else if (layer.recompute) {
    memory.stash_bytes = ValueBytes(kept, info.output);
  } else {
    for (const Shape& output : info.op_outputs) memory.stash_bytes += ValueBytes(kept, output);
  }
  const bool has_floats_beside = recipe.kept_codes != KeptCodes::kNone || recipe.copies_values;
  if (has_floats_beside) {
    memory.working_bytes += kFloatsAtOnce * largest;
  } else if (narrows) {
    memory.working_bytes += largest;
  }
  if (layer.recompute) {
    for (const Shape& output : info.op_outputs)
      memory.working_bytes += ValueBytes(format.activation, output);
  }
  memory.working_bytes += recipe.weight_bytes * WeightsOf(info);
  if (layer.recompute) memory.between_bytes = BytesBehindWeights(layer, info, format);
  if (recipe.keeps_copies && !layer.recompute)
    memory.stash_bytes += BytesBehindWeights(layer, info, format);
  return memory;
}

absl::StatusOr<Partition> Cut(const PlanRequest& request) {
  PartitionRequest cut;
  cut.layers = request.model->layer_count();
  cut.devices = static_cast<int>(request.devices.size());
  const bool is_later = request.policy->next != nullptr && !request.held.empty();
  const bool is_first_of_several = request.policy->next != nullptr && !is_later;
  if (!request.policy->needs_profile() || is_first_of_several) return request.policy->plan(cut);
  cut.compute = request.compute;
  RUNNEL_ASSIGN_OR_RETURN(cut.link_seconds, MakeLinkSeconds(request));
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel pipeline, MakePipelineModel(request));
  cut.pipeline = &pipeline;
  return is_later ? request.policy->next(cut, request.held) : request.policy->plan(cut);
}

// Fills in the members that the policy left empty. own: the position of the request's codecs in
// Choices.
absl::Status Complete(const PlanRequest& request, int own, Placement& placement) {
  if (placement.order.empty()) {
    for (size_t i = 0; i < request.devices.size(); ++i)
      placement.order.push_back(static_cast<int>(i));
  }
  const size_t stages = placement.order.size();
  if (!request.caps.empty()) {
    // The user's caps are for every device: a plan with fewer stages takes the first ones.
    placement.caps.assign(request.caps.begin(), request.caps.begin() + stages);
  } else if (placement.caps.empty()) {
    placement.caps = request.schedule->caps(static_cast<int>(stages), request.micro_batches);
  }
  if (placement.codecs.empty()) placement.codecs.assign(stages - 1, own);
  if (placement.last_layer.size() != stages || placement.caps.size() != stages ||
      placement.codecs.size() + 1 != stages) {
    return absl::InternalError("plan: the policy's answer does not fit together");
  }
  return absl::OkStatus();
}

void AddNoise(const NoisePlaces& places, const NoiseRatios& ratios, const CodecChoice& choice,
              int layers, CodecCost& cost) {
  for (int layer = 0; layer < layers; ++layer) {
    double noise = 0;
    for (const Direction direction : kDirections) {
      const bool forward = direction == Direction::kForward;
      const TensorError& error = forward ? choice.forward_error : choice.backward_error;
      noise += places.At(layer, direction).Of(error) * ratios.At(layer, direction);
    }
    cost.noise_behind.push_back(noise);
  }
}

}  // namespace

absl::StatusOr<LinkSecondsFn> MakeLinkSeconds(const PlanRequest& request) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<std::vector<LinkSpeed>> speeds, LinkSpeeds(request));
  if (request.model == nullptr || !request.codecs.encoded_forward ||
      !request.codecs.encoded_backward) {
    return absl::InvalidArgumentError("plan: link times need a model and the codecs' sizes");
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos,
                          InferShapes(*request.model, request.micro_batch_size));
  std::vector<Bytes> forward;
  std::vector<Bytes> backward;
  for (const LayerInfo& info : infos) {
    forward.push_back(request.codecs.encoded_forward(info.output));
    backward.push_back(request.codecs.encoded_backward(info.output));
  }
  return [forward = std::move(forward), backward = std::move(backward), speeds = std::move(speeds),
          front = request.model->frozen_front(), down_share = request.codecs.forward_share,
          up_share = request.codecs.backward_share](int layer, int from, Direction direction) {
    if (direction == Direction::kForward)
      return FrameSeconds(speeds[from][from + 1], forward[layer], down_share);
    return layer < front ? 0.0 : FrameSeconds(speeds[from + 1][from], backward[layer], up_share);
  };
}

absl::StatusOr<PipelineModel> MakePipelineModel(const PlanRequest& request) {
  PipelineModel model;
  RUNNEL_ASSIGN_OR_RETURN(model.speeds, LinkSpeeds(request));
  if (request.model == nullptr || !request.codecs.encoded_forward ||
      !request.codecs.encoded_backward) {
    return absl::InvalidArgumentError("plan: a pipeline needs a model and the codecs' sizes");
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos,
                          InferShapes(*request.model, request.micro_batch_size));
  model.compute = request.compute;
  model.max_cap = request.max_cap;
  model.looks_ahead = request.looks_ahead;
  model.raised_looks_ahead = request.raised_looks_ahead;
  model.noise_budget = request.noise_budget;
  model.devices = request.device_costs;
  model.host_processors = request.host_processors;
  if (model.devices.empty()) model.devices.resize(request.devices.size());
  if (model.devices.size() != request.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan: costs of ", model.devices.size(),
                                                   " devices, but there are ",
                                                   request.devices.size()));
  }
  if (request.schedule != nullptr) {
    model.deferred = request.schedule->deferred;
    if (request.schedule->drains_each_step) model.drain_every = request.micro_batches;
    model.step_every = request.micro_batches;
    model.short_step = request.short_step;
    model.barrier_every = request.barrier_every * request.micro_batches;
    model.barrier_pause_seconds = request.barrier_pause_seconds;
  }
  model.input_bytes =
      request.micro_batch_size * request.model->input.elements() * 4 + kFrameHeaderBytes;
  model.label_bytes = request.micro_batch_size * 4 + kFrameHeaderBytes;
  model.frozen_front = request.model->frozen_front();
  for (const LayerInfo& info : infos) {
    const bool forward_only = model.layers() < model.frozen_front;
    const LayerSpec& layer = request.model->layers[model.memory.size()];
    model.raw_bytes.push_back(BoundaryBytes(request.format, info.output));
    model.memory.push_back(MemoryOf(request, layer, info, forward_only));
  }
  const NoisePlaces places(*request.model, infos);
  for (const CodecChoice& choice : Choices(request, model.default_codec)) {
    CodecCost& cost = model.codecs.emplace_back();
    cost.forward = choice.forward;
    cost.backward = choice.backward;
    cost.forward_works = !choice.forward.is_identity();
    cost.backward_works = !choice.backward.is_identity();
    AddNoise(places, request.noise_ratios, choice, static_cast<int>(infos.size()), cost);
    cost.lossy_directions = choice.lossy_directions;
    cost.down_share = choice.forward_share;
    cost.up_share = choice.backward_share;
    for (const LayerInfo& info : infos) {
      cost.down_bytes.push_back(choice.encoded_forward(info.output).value() + kFrameHeaderBytes);
      cost.up_bytes.push_back(choice.encoded_backward(info.output).value() + kFrameHeaderBytes);
      if (!choice.kept) continue;
      cost.kept_bytes.push_back((1 + request.state_copies) *
                                choice.kept(info.output, request.dataset_samples));
    }
  }
  return model;
}

absl::StatusOr<Placement> PlacementOf(const PlanRequest& request, const PipelineModel& model,
                                      const Plan& plan) {
  Placement placement;
  for (const StagePlan& stage : plan.stages) {
    const DeviceId sole(stage.sole_device());
    const auto device = std::find(request.devices.begin(), request.devices.end(), sole);
    if (device == request.devices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan: device ", sole.value(), " is not there"));
    }
    placement.order.push_back(static_cast<int>(device - request.devices.begin()));
    placement.last_layer.push_back(stage.last_layer);
    placement.caps.push_back(stage.cap);
  }
  for (const LinkPlan& link : plan.links) {
    const auto codec =
        std::find_if(model.codecs.begin(), model.codecs.end(), [&](const CodecCost& cost) {
          return cost.forward == link.codec_forward && cost.backward == link.codec_backward;
        });
    if (codec == model.codecs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("plan: no cost of codecs ",
                                                     link.codec_forward.text(), " and ",
                                                     link.codec_backward.text()));
    }
    placement.codecs.push_back(static_cast<int>(codec - model.codecs.begin()));
  }
  return placement;
}

absl::StatusOr<PlacedPlan> MakePlacedPlan(const PlanRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckRequest(request));
  RUNNEL_ASSIGN_OR_RETURN(Partition partition, Cut(request));
  int own = 0;
  const std::vector<CodecChoice> choices = Choices(request, own);
  RUNNEL_RETURN_IF_ERROR(Complete(request, own, partition.placement));
  PlacedPlan placed{{}, std::move(partition.placement)};
  const Placement& placement = placed.placement;
  Plan& plan = placed.plan;
  plan.generation = request.generation;
  plan.schedule = std::string(request.schedule->name);
  plan.drains_each_step = request.schedule->drains_each_step;
  const std::vector<StageOrder> orders = StageOrders(request.schedule->deferred, placement.caps);
  int first = 0;
  for (size_t i = 0; i < placement.order.size(); ++i) {
    plan.stages.push_back({{Seat{request.devices[placement.order[i]]}},
                           first,
                           placement.last_layer[i],
                           orders[i].cap,
                           orders[i].deferred_weight_gradients});
    first = placement.last_layer[i] + 1;
  }
  for (const int codec : placement.codecs)
    plan.links.push_back({choices[codec].forward, choices[codec].backward});
  RUNNEL_RETURN_IF_ERROR(CheckPlan(plan, *request.model));
  return placed;
}

absl::StatusOr<Plan> MakePlan(const PlanRequest& request) {
  RUNNEL_ASSIGN_OR_RETURN(PlacedPlan placed, MakePlacedPlan(request));
  return std::move(placed.plan);
}

}  // namespace runnel
