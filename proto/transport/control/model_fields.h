#pragma once

// The fields of model.proto (wire_fields.h), and the types that travel as texts and numbers.

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/training_change.h"
#include "proto/transport/control/wire_fields.h"

namespace runnel {

template <>
struct WireForm<OpKind> {
  using Form = std::string;
  static Form To(OpKind kind) { return std::string(Name(kind)); }
  static absl::StatusOr<OpKind> From(const Form& name) {
    const absl::StatusOr<OpKind> kind = OpKindFromName(name);
    return kind.ok() ? kind : absl::InvalidArgumentError("is not known");
  }
};

template <>
struct WireForm<CodecSchedule> {
  using Form = std::string;
  static Form To(const CodecSchedule& codecs) { return codecs.text(); }
  static absl::StatusOr<CodecSchedule> From(const Form& text) { return CodecSchedule::Parse(text); }
};

template <>
struct WireForm<Shape> {
  using Form = std::vector<int64_t>;
  static Form To(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }
  static absl::StatusOr<Shape> From(const Form& dims) { return Shape::Create(dims); }
};

template <>
struct WireForm<DType> {
  using Form = uint32_t;
  static Form To(DType dtype) { return static_cast<Form>(dtype); }
  static absl::StatusOr<DType> From(Form number) { return DTypeFromNumber(number); }
};

template <>
struct WireForm<Direction> {
  using Form = bool;
  static Form To(Direction direction) { return direction == Direction::kBackward; }
  static absl::StatusOr<Direction> From(Form backward) {
    return backward ? Direction::kBackward : Direction::kForward;
  }
};

// StagePlan of the message has one device.
template <>
struct WireForm<std::vector<Seat>> {
  using Form = int32_t;
  static Form To(const std::vector<Seat>& seats) { return seats.front().device.value(); }
  static absl::StatusOr<std::vector<Seat>> From(Form device) { return {{Seat{DeviceId(device)}}}; }
};

void ListFields(auto& list, OpSpec& op) {
  list("kind", op.kind)("inputs", op.inputs)("out_channels", op.out_channels)("kernel", op.kernel)(
      "stride", op.stride)("padding", op.padding)("groups", op.groups)("bias", op.bias)(
      "rate", op.rate)("epsilon", op.epsilon)("momentum", op.momentum)("init", op.init)(
      "init_std", op.init_std)("rows", op.rows)("positions", op.positions)("heads", op.heads)(
      "name", op.name)("frozen", op.frozen);
  Unsaid<int64_t, 2> padding_end = {op.padding_end, {-1, -1}}, dilation = {op.dilation, {1, 1}};
  list("padding_end", padding_end)("dilation", dilation)("begin", op.begin)("counts_padding",
                                                                            op.counts_padding);
  list("options", op.options)("held", op.held)("exact", op.exact);
  list("bidirectional", op.bidirectional);
}

void ListFields(auto& list, LayerSpec& layer) {
  list("name", layer.name)("ops", layer.ops)("frozen", layer.frozen)("recompute", layer.recompute);
  std::optional<DType> stash;  // a message says nothing of FP32
  if (layer.stash != DType::kFloat32) stash = layer.stash;
  list("stash", stash);
  layer.stash = stash.value_or(DType::kFloat32);
}

void ListFields(auto& list, ModelSpec& model) {
  list("name", model.name)("input", model.input)("classes", model.classes)("layers", model.layers);
}

void ListFields(auto& list, StagePlan& stage) {
  list("device", stage.seats)("first_layer", stage.first_layer)("last_layer", stage.last_layer);
  list("cap", stage.cap)("deferred_weight_gradients", stage.deferred_weight_gradients);
  list("recompute", stage.recompute);
}

void ListFields(auto& list, LinkPlan& link) {
  list("codec_forward", link.codec_forward)("codec_backward", link.codec_backward);
}

void ListFields(auto& list, Plan& plan) {
  list("generation", plan.generation)("schedule", plan.schedule);
  list("drains_each_step", plan.drains_each_step)("stages", plan.stages)("links", plan.links);
}

void ListFields(auto& list, TensorData& tensor) {
  list("name", tensor.name)("dtype", tensor.dtype)("shape", tensor.shape)("data", tensor.bytes);
}

void ListFields(auto& list, LayerState& layer) {
  list("layer", layer.layer)("tensors", layer.tensors)("slots", layer.slots);
}

void ListFields(auto& list, EncoderState& encoder) {
  list("boundary", encoder.boundary)("backward", encoder.direction);
  list("codec", encoder.codec)("state", encoder.state);
}

void ListFields(auto& list, ModelState& state) {
  list("layers", state.layers)("encoders", state.encoders);
}

void ListFields(auto& list, TrainingChange& change) {
  list("from_step", change.from_step)("dial", change.dial)("value", change.value);
}

}  // namespace runnel
