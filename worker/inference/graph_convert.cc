#include "worker/inference/graph_convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/int8_inference.h"
#include "proto/inference.pb.h"

namespace runnel {
namespace {

using inference::Int8Graph;
using inference::Int8Node;
using inference::NodeKind;

bool HasWindow(NodeKind kind) {
  return kind == NodeKind::kConv || kind == NodeKind::kMaxPool || kind == NodeKind::kAvgPool;
}

proto::QuantizedNode ToProto(const Int8Node& n) {
  proto::QuantizedNode message;
  message.set_kind(static_cast<uint32_t>(n.node.kind));
  for (int i = 0; i < n.node.input_count(); ++i) message.add_inputs(n.node.inputs[i]);
  message.set_clamp(static_cast<uint32_t>(n.node.clamp));
  message.set_layer(n.node.layer);
  message.set_op(n.node.op);
  const ConvShape& s = n.node.shape;
  if (HasWindow(n.node.kind)) {
    for (int64_t size : {s.kernel_h, s.kernel_w, s.stride_h, s.stride_w, s.pad_h, s.pad_w}) {
      message.add_window(size);
    }
  }
  if (n.node.kind == NodeKind::kConv) {
    message.set_out_channels(s.out_c);
    message.set_groups(s.groups);
  }
  message.set_scale(n.coding.scale);
  message.set_zero(n.coding.zero);
  message.set_max_code(n.coding.max_code);
  message.set_weights(n.weights.data(), n.weights.size());
  message.mutable_weight_zeros()->Assign(n.weight_zeros.begin(), n.weight_zeros.end());
  message.mutable_bias()->Assign(n.bias.begin(), n.bias.end());
  for (const inference::Factor& factor : n.factors) {
    message.add_multipliers(factor.multiplier);
    message.add_shifts(factor.shift);
  }
  message.mutable_logit_scales()->Assign(n.logit_scales.begin(), n.logit_scales.end());
  message.set_winograd(n.winograd);
  message.mutable_real_weights()->Assign(n.real_weights.begin(), n.real_weights.end());
  message.mutable_real_bias()->Assign(n.real_bias.begin(), n.real_bias.end());
  return message;
}

absl::Status ReadWindow(const proto::QuantizedNode& message, ConvShape& s) {
  if (message.window_size() != 6) return absl::InvalidArgumentError("has a window of other sizes");
  s.kernel_h = message.window(0);
  s.kernel_w = message.window(1);
  s.stride_h = message.window(2);
  s.stride_w = message.window(3);
  s.pad_h = message.window(4);
  s.pad_w = message.window(5);
  return absl::OkStatus();
}

absl::StatusOr<Int8Node> FromProto(const proto::QuantizedNode& message) {
  Int8Node n;
  if (message.kind() > UINT8_MAX || message.clamp() > UINT8_MAX) {
    return absl::InvalidArgumentError("is of an unknown kind");
  }
  n.node.kind = static_cast<NodeKind>(message.kind());
  n.node.clamp = static_cast<inference::Clamp>(message.clamp());
  if (message.inputs_size() != n.node.input_count()) {
    return absl::InvalidArgumentError("has another number of inputs");
  }
  for (int i = 0; i < message.inputs_size(); ++i) n.node.inputs[i] = message.inputs(i);
  n.node.layer = message.layer();
  n.node.op = message.op();
  if (HasWindow(n.node.kind)) RUNNEL_RETURN_IF_ERROR(ReadWindow(message, n.node.shape));
  if (n.node.kind == NodeKind::kConv) {
    n.node.shape.out_c = message.out_channels();
    n.node.shape.groups = message.groups();
  }
  n.coding = {message.scale(), message.zero(), message.max_code()};
  n.weights.assign(message.weights().begin(), message.weights().end());
  n.weight_zeros.assign(message.weight_zeros().begin(), message.weight_zeros().end());
  n.bias.assign(message.bias().begin(), message.bias().end());
  if (message.multipliers_size() != message.shifts_size()) {
    return absl::InvalidArgumentError("has multipliers without shifts");
  }
  for (int i = 0; i < message.shifts_size(); ++i) {
    n.factors.push_back({message.multipliers(i), message.shifts(i)});
  }
  n.logit_scales.assign(message.logit_scales().begin(), message.logit_scales().end());
  n.winograd = message.winograd();
  n.real_weights.assign(message.real_weights().begin(), message.real_weights().end());
  n.real_bias.assign(message.real_bias().begin(), message.real_bias().end());
  return n;
}

// Layer `layer` of a model with so many.
absl::StatusOr<Int8Graph> GraphOfLayer(const LayerState& state, int layer, int layers) {
  const bool fits = state.layer == layer && state.tensors.size() == 1 && state.slots.empty() &&
                    state.tensors.front().name == kNodesTensor &&
                    state.tensors.front().dtype == DType::kUInt8;
  if (!fits) return absl::InvalidArgumentError("is no layer of a model in integers");
  RUNNEL_ASSIGN_OR_RETURN(Int8Graph graph, ParseGraph(state.tensors.front().bytes));
  if (graph.takes_codes != (layer > 0) || graph.gives_codes != (layer + 1 < layers)) {
    return absl::InvalidArgumentError("takes or gives what its place in the model does not");
  }
  return graph;
}

// Puts the nodes of the layer that follows behind those of `graph`.
absl::Status AppendLayer(Int8Graph next, Int8Graph& graph) {
  const Int8Node& end = graph.nodes.back();
  const Int8Node& begin = next.nodes.front();
  const ConvShape &gives = end.node.shape, &takes = begin.node.shape;
  if (!(begin.coding == end.coding) || takes.out_c != gives.out_c || takes.out_h != gives.out_h ||
      takes.out_w != gives.out_w) {
    return absl::InvalidArgumentError("takes another value than the layer before gives");
  }
  const auto offset = static_cast<int32_t>(graph.nodes.size()) - 1;
  for (size_t i = 1; i < next.nodes.size(); ++i) {
    Int8Node& n = graph.nodes.emplace_back(std::move(next.nodes[i]));
    for (int k = 0; k < n.node.input_count(); ++k) n.node.inputs[k] += offset;
  }
  graph.gives_codes = next.gives_codes;
  return absl::OkStatus();
}

absl::Status CheckShapes(const Int8Graph& graph, const ModelSpec& model, int first, int last) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  if (graph.nodes.front().node.outputs() == infos[first].input.elements() &&
      graph.nodes.back().node.outputs() == infos[last].output.elements()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the nodes of layers ", first, " to ", last, " take ", graph.nodes.front().node.outputs(),
      " values and give ", graph.nodes.back().node.outputs(), ", the model's layers ",
      infos[first].input.elements(), " and ", infos[last].output.elements()));
}

}  // namespace

std::string SerializeGraph(const Int8Graph& graph) {
  proto::QuantizedGraph message;
  const ConvShape& sample = graph.nodes.front().node.shape;
  for (int64_t size : {sample.out_c, sample.out_h, sample.out_w}) message.add_sample(size);
  for (const Int8Node& n : graph.nodes) *message.add_nodes() = ToProto(n);
  message.set_takes_codes(graph.takes_codes);
  message.set_gives_codes(graph.gives_codes);
  return message.SerializeAsString();
}

absl::StatusOr<Int8Graph> ParseGraph(absl::string_view bytes) {
  proto::QuantizedGraph message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("its graph cannot be parsed");
  }
  if (message.sample_size() != 3) return absl::InvalidArgumentError("its samples have no shape");
  Int8Graph graph;
  graph.takes_codes = message.takes_codes();
  graph.gives_codes = message.gives_codes();
  for (const proto::QuantizedNode& node : message.nodes()) {
    absl::StatusOr<Int8Node> n = FromProto(node);
    if (!n.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", graph.nodes.size(), " ", n.status().message()));
    }
    graph.nodes.push_back(*std::move(n));
  }
  if (!graph.nodes.empty()) {
    ConvShape& sample = graph.nodes.front().node.shape;
    sample.out_c = message.sample(0);
    sample.out_h = message.sample(1);
    sample.out_w = message.sample(2);
  }
  RUNNEL_RETURN_IF_ERROR(inference::CheckAndInfer(graph));
  return graph;
}

absl::StatusOr<Int8Graph> GraphOfLayers(const ModelState& state, const ModelSpec& model,
                                        int first_layer, int last_layer) {
  if (first_layer < 0 || last_layer < first_layer || last_layer >= model.layer_count() ||
      static_cast<int>(state.layers.size()) != last_layer - first_layer + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state: has ", state.layers.size(), " layers for ", first_layer, " to ", last_layer));
  }
  Int8Graph graph;
  for (int layer = first_layer; layer <= last_layer; ++layer) {
    absl::StatusOr<Int8Graph> one = GraphOfLayer(
        state.layers[static_cast<size_t>(layer - first_layer)], layer, model.layer_count());
    absl::Status status = one.status();
    if (status.ok() && layer > first_layer) status = AppendLayer(*std::move(one), graph);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("state of layer ", layer, ": ", status.message()));
    }
    if (layer == first_layer) graph = *std::move(one);
  }
  RUNNEL_RETURN_IF_ERROR(inference::CheckAndInfer(graph));
  RUNNEL_RETURN_IF_ERROR(CheckShapes(graph, model, first_layer, last_layer));
  return graph;
}

}  // namespace runnel
