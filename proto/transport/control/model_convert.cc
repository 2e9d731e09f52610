#include "proto/transport/control/model_convert.h"

#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr double kMaxReal = 1e12;
// A layer's operators have at most five state tensors each (weight, bias or the four of a norm).
constexpr int64_t kMaxTensorsPerLayer = int64_t{5} * kMaxOpsPerLayer;

template <typename Repeated>
absl::Status ToPair(const std::string& field, const Repeated& values, int64_t low,
                    std::array<int64_t, 2>& pair) {
  RUNNEL_RETURN_IF_ERROR(CheckCount(field, values.size(), 2, 2));
  for (int axis = 0; axis < 2; ++axis) {
    RUNNEL_RETURN_IF_ERROR(CheckRange(field, values[axis], low, kMaxInt32));
    pair[axis] = values[axis];
  }
  return absl::OkStatus();
}

proto::Op OpToProto(const OpSpec& op) {
  proto::Op message;
  message.set_kind(std::string(Name(op.kind)));
  message.mutable_inputs()->Assign(op.inputs.begin(), op.inputs.end());
  message.set_out_channels(op.out_channels);
  message.mutable_kernel()->Assign(op.kernel.begin(), op.kernel.end());
  message.mutable_stride()->Assign(op.stride.begin(), op.stride.end());
  message.mutable_padding()->Assign(op.padding.begin(), op.padding.end());
  message.set_groups(op.groups);
  message.set_bias(op.bias);
  message.set_rate(op.rate);
  message.set_epsilon(op.epsilon);
  message.set_momentum(op.momentum);
  message.set_init(static_cast<int32_t>(op.init));
  message.set_init_std(op.init_std);
  return message;
}

absl::StatusOr<OpSpec> OpFromProto(const std::string& at, const proto::Op& message) {
  OpSpec op;
  const absl::StatusOr<OpKind> kind = OpKindFromName(message.kind());
  if (!kind.ok() || message.kind().size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(at, ".kind: is not known"));
  }
  op.kind = *kind;
  RUNNEL_RETURN_IF_ERROR(CheckCount(at + ".inputs", message.inputs_size(), 1, kMaxOpsPerLayer));
  for (const int32_t id : message.inputs()) {
    RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".inputs", id, 0, kMaxOpsPerLayer));
  }
  op.inputs.assign(message.inputs().begin(), message.inputs().end());
  RUNNEL_RETURN_IF_ERROR(
      CheckRange(at + ".out_channels", message.out_channels(), 0, Shape::kMaxElements));
  op.out_channels = message.out_channels();
  RUNNEL_RETURN_IF_ERROR(ToPair(at + ".kernel", message.kernel(), 1, op.kernel));
  RUNNEL_RETURN_IF_ERROR(ToPair(at + ".stride", message.stride(), 1, op.stride));
  RUNNEL_RETURN_IF_ERROR(ToPair(at + ".padding", message.padding(), 0, op.padding));
  RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".groups", message.groups(), 1, Shape::kMaxElements));
  op.groups = message.groups();
  op.bias = message.bias();
  RUNNEL_RETURN_IF_ERROR(CheckReal(at + ".rate", message.rate(), 0, 1));
  op.rate = message.rate();
  RUNNEL_RETURN_IF_ERROR(CheckReal(at + ".epsilon", message.epsilon(), 0, 1));
  op.epsilon = message.epsilon();
  RUNNEL_RETURN_IF_ERROR(CheckReal(at + ".momentum", message.momentum(), 0, 1));
  op.momentum = message.momentum();
  RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".init", message.init(),
                                    static_cast<int>(InitKind::kUniformFanIn),
                                    static_cast<int>(InitKind::kXavierNormal)));
  op.init = static_cast<InitKind>(message.init());
  RUNNEL_RETURN_IF_ERROR(CheckReal(at + ".init_std", message.init_std(), 0, kMaxReal));
  op.init_std = message.init_std();
  return op;
}

absl::StatusOr<LayerSpec> LayerFromProto(const std::string& at, const proto::Layer& message) {
  LayerSpec layer;
  RUNNEL_RETURN_IF_ERROR(CheckName(at + ".name", message.name()));
  layer.name = message.name();
  RUNNEL_RETURN_IF_ERROR(CheckCount(at + ".ops", message.ops_size(), 1, kMaxOpsPerLayer));
  for (int i = 0; i < message.ops_size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(OpSpec op,
                            OpFromProto(absl::StrCat(at, ".ops[", i, "]"), message.ops(i)));
    layer.ops.push_back(std::move(op));
  }
  return layer;
}

bool IsZero(const std::string& bytes) { return bytes.find_first_not_of('\0') == std::string::npos; }

proto::Tensor TensorToProto(TensorData tensor, ZeroTensors zeros) {
  proto::Tensor message;
  message.set_name(std::move(tensor.name));
  message.set_dtype(static_cast<uint32_t>(tensor.dtype));
  message.mutable_shape()->Assign(tensor.shape.dims().begin(), tensor.shape.dims().end());
  if (zeros == ZeroTensors::kWhole || !IsZero(tensor.bytes))
    message.set_data(std::move(tensor.bytes));
  return message;
}

absl::StatusOr<TensorData> TensorFromProto(const std::string& at, proto::Tensor& message,
                                           ZeroTensors zeros) {
  TensorData tensor;
  RUNNEL_RETURN_IF_ERROR(CheckName(at + ".name", message.name()));
  tensor.name = message.name();
  const absl::StatusOr<DType> dtype = DTypeFromNumber(message.dtype());
  if (!dtype.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(at, ".dtype: ", dtype.status().message()));
  }
  tensor.dtype = *dtype;
  const absl::StatusOr<Shape> shape =
      Shape::Create(absl::MakeConstSpan(message.shape().data(), message.shape_size()));
  if (!shape.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(at, ".shape: ", shape.status().message()));
  }
  tensor.shape = *shape;
  const uint64_t bytes = static_cast<uint64_t>(shape->elements()) * SizeOf(*dtype);
  const bool is_left_out = zeros == ZeroTensors::kLeftOut && message.data().empty();
  if (message.data().size() != bytes && !is_left_out) {
    return absl::InvalidArgumentError(absl::StrCat(at, ".data: has ", message.data().size(),
                                                   " bytes, its shape ", shape->ToString(),
                                                   " needs ", bytes));
  }
  tensor.bytes = std::move(*message.mutable_data());
  return tensor;
}

template <typename Repeated>
absl::Status TensorsFromProto(const std::string& at, Repeated& messages, ZeroTensors zeros,
                              std::vector<TensorData>& tensors) {
  RUNNEL_RETURN_IF_ERROR(CheckCount(at, messages.size(), 0, kMaxTensorsPerLayer));
  for (int i = 0; i < messages.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(TensorData tensor,
                            TensorFromProto(absl::StrCat(at, "[", i, "]"), messages[i], zeros));
    tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::StatusOr<CodecSchedule> ReadCodecs(const std::string& field, absl::string_view text) {
  absl::StatusOr<CodecSchedule> codecs = CodecSchedule::Parse(text);
  if (codecs.ok()) return codecs;
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", codecs.status().message()));
}

absl::StatusOr<EncoderState> EncoderFromProto(const std::string& at, proto::EncoderState& message) {
  EncoderState encoder;
  RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".boundary", message.boundary(), 0, kMaxLayers - 1));
  encoder.boundary = message.boundary();
  encoder.direction = message.backward() ? Direction::kBackward : Direction::kForward;
  RUNNEL_RETURN_IF_ERROR(CheckName(at + ".codec", message.codec()));
  encoder.codec = message.codec();
  encoder.state = std::move(*message.mutable_state());
  return encoder;
}

}  // namespace

proto::Model ToProto(const ModelSpec& model) {
  proto::Model message;
  message.set_name(model.name);
  message.mutable_input()->Assign(model.input.dims().begin(), model.input.dims().end());
  message.set_classes(model.classes);
  for (const LayerSpec& layer : model.layers) {
    proto::Layer& out = *message.add_layers();
    out.set_name(layer.name);
    for (const OpSpec& op : layer.ops) *out.add_ops() = OpToProto(op);
  }
  return message;
}

absl::StatusOr<ModelSpec> FromProto(const proto::Model& message) {
  ModelSpec model;
  RUNNEL_RETURN_IF_ERROR(CheckName("model.name", message.name()));
  model.name = message.name();
  const absl::StatusOr<Shape> input =
      Shape::Create(absl::MakeConstSpan(message.input().data(), message.input_size()));
  if (!input.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("model.input: ", input.status().message()));
  }
  model.input = *input;
  RUNNEL_RETURN_IF_ERROR(CheckRange("model.classes", message.classes(), 1, Shape::kMaxElements));
  model.classes = message.classes();
  RUNNEL_RETURN_IF_ERROR(CheckCount("model.layers", message.layers_size(), 1, kMaxLayers));
  for (int i = 0; i < message.layers_size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(
        LayerSpec layer, LayerFromProto(absl::StrCat("model.layers[", i, "]"), message.layers(i)));
    model.layers.push_back(std::move(layer));
  }
  RUNNEL_RETURN_IF_ERROR(InferShapes(model, 1).status());
  return model;
}

proto::Plan ToProto(const Plan& plan) {
  proto::Plan message;
  message.set_generation(plan.generation.value());
  message.set_schedule(plan.schedule);
  message.set_drains_each_step(plan.drains_each_step);
  for (const StagePlan& stage : plan.stages) {
    proto::StagePlan& out = *message.add_stages();
    out.set_device(stage.device.value());
    out.set_first_layer(stage.first_layer);
    out.set_last_layer(stage.last_layer);
    out.set_cap(stage.cap);
    out.set_deferred_weight_gradients(stage.deferred_weight_gradients);
  }
  for (const LinkPlan& link : plan.links) {
    proto::LinkPlan& out = *message.add_links();
    out.set_codec_forward(link.codec_forward.text());
    out.set_codec_backward(link.codec_backward.text());
  }
  return message;
}

absl::StatusOr<Plan> FromProto(const proto::Plan& message) {
  Plan plan;
  RUNNEL_RETURN_IF_ERROR(CheckRange("plan.generation", message.generation(), 0, kMaxInt32));
  plan.generation = Generation(message.generation());
  RUNNEL_RETURN_IF_ERROR(CheckText("plan.schedule", message.schedule()));
  plan.schedule = message.schedule();
  plan.drains_each_step = message.drains_each_step();
  RUNNEL_RETURN_IF_ERROR(CheckCount("plan.stages", message.stages_size(), 1, kMaxLayers));
  for (int i = 0; i < message.stages_size(); ++i) {
    const std::string at = absl::StrCat("plan.stages[", i, "]");
    const proto::StagePlan& stage = message.stages(i);
    RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".device", stage.device(), 0, kMaxInt32));
    RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".first_layer", stage.first_layer(), 0, kMaxLayers - 1));
    RUNNEL_RETURN_IF_ERROR(
        CheckRange(at + ".last_layer", stage.last_layer(), stage.first_layer(), kMaxLayers - 1));
    RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".cap", stage.cap(), 1, kMaxAmount));
    RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".deferred_weight_gradients",
                                      stage.deferred_weight_gradients(), 0, kMaxAmount));
    plan.stages.push_back({DeviceId(stage.device()), stage.first_layer(), stage.last_layer(),
                           stage.cap(), stage.deferred_weight_gradients()});
  }
  RUNNEL_RETURN_IF_ERROR(CheckCount("plan.links", message.links_size(), message.stages_size() - 1,
                                    message.stages_size() - 1));
  for (int i = 0; i < message.links_size(); ++i) {
    const std::string at = absl::StrCat("plan.links[", i, "]");
    const proto::LinkPlan& link = message.links(i);
    LinkPlan& read = plan.links.emplace_back();
    RUNNEL_ASSIGN_OR_RETURN(read.codec_forward,
                            ReadCodecs(at + ".codec_forward", link.codec_forward()));
    RUNNEL_ASSIGN_OR_RETURN(read.codec_backward,
                            ReadCodecs(at + ".codec_backward", link.codec_backward()));
  }
  return plan;
}

proto::ModelState ToProto(ModelState state, ZeroTensors zeros) {
  proto::ModelState message;
  for (LayerState& layer : state.layers) {
    proto::LayerState& out = *message.add_layers();
    out.set_layer(layer.layer);
    for (TensorData& tensor : layer.tensors)
      *out.add_tensors() = TensorToProto(std::move(tensor), zeros);
    for (TensorData& tensor : layer.slots)
      *out.add_slots() = TensorToProto(std::move(tensor), zeros);
  }
  for (EncoderState& encoder : state.encoders) {
    proto::EncoderState& out = *message.add_encoders();
    out.set_boundary(encoder.boundary);
    out.set_backward(encoder.direction == Direction::kBackward);
    out.set_codec(std::move(encoder.codec));
    out.set_state(std::move(encoder.state));
  }
  return message;
}

absl::StatusOr<ModelState> FromProto(proto::ModelState message, ZeroTensors zeros) {
  ModelState state;
  RUNNEL_RETURN_IF_ERROR(CheckCount("state.layers", message.layers_size(), 0, kMaxLayers));
  int next_layer = 0;
  for (int i = 0; i < message.layers_size(); ++i) {
    const std::string at = absl::StrCat("state.layers[", i, "]");
    proto::LayerState& in = *message.mutable_layers(i);
    RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".layer", in.layer(), next_layer, kMaxLayers - 1));
    next_layer = in.layer() + 1;
    LayerState& layer = state.layers.emplace_back();
    layer.layer = in.layer();
    RUNNEL_RETURN_IF_ERROR(
        TensorsFromProto(at + ".tensors", *in.mutable_tensors(), zeros, layer.tensors));
    RUNNEL_RETURN_IF_ERROR(
        TensorsFromProto(at + ".slots", *in.mutable_slots(), zeros, layer.slots));
  }
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("state.encoders", message.encoders_size(), 0, int64_t{2} * kMaxLayers));
  for (int i = 0; i < message.encoders_size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(
        EncoderState encoder,
        EncoderFromProto(absl::StrCat("state.encoders[", i, "]"), *message.mutable_encoders(i)));
    state.encoders.push_back(std::move(encoder));
  }
  return state;
}

proto::TrainingChange ToProto(const TrainingChange& change) {
  proto::TrainingChange message;
  message.set_from_step(change.from_step);
  message.set_dial(change.dial);
  message.set_value(change.value);
  return message;
}

namespace {

absl::StatusOr<TrainingChange> ChangeFromProto(const std::string& field,
                                               const proto::TrainingChange& message) {
  RUNNEL_RETURN_IF_ERROR(CheckRange(field + ".from_step", message.from_step(), 1, kMaxAmount));
  if (!message.dial().empty())
    return TrainingChange{message.from_step(), message.dial(), message.value()};
  return ChangeOfGradientBits(message.from_step(),
                              {message.gradient_bits_conv(), message.gradient_bits_linear()});
}

}  // namespace

absl::StatusOr<std::vector<TrainingChange>> FromProto(
    const std::string& field,
    const google::protobuf::RepeatedPtrField<proto::TrainingChange>& messages) {
  RUNNEL_RETURN_IF_ERROR(CheckCount(field, messages.size(), 0, kMaxTrainingChanges));
  std::vector<TrainingChange> changes;
  for (const proto::TrainingChange& message : messages) {
    RUNNEL_ASSIGN_OR_RETURN(changes.emplace_back(), ChangeFromProto(field, message));
  }
  if (absl::Status status = CheckTrainingChanges(changes); !status.ok())
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", status.message()));
  return changes;
}

}  // namespace runnel
