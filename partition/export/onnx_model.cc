#include "partition/export/onnx_model.h"

#include <cstring>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "onnx/onnx_pb.h"
#include "partition/export/onnx_nodes.h"
#include "partition/export/onnx_tokens.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int64_t kOpset = 13;
constexpr int64_t kIrVersion = 7;  // the first with opset 13
// The last in which Clip has its limits as attributes: OpenCV 4.6 reads no others.
constexpr int64_t kClipOpset = 10;
constexpr float kRelu6 = 6;

// Of an operator that is one node without attributes.
const char* PlainName(OpKind kind) {
  return kind == OpKind::kAdd ? "Add" : kind == OpKind::kRelu ? "Relu" : "Sigmoid";
}

// The graph of one model, node by node.
class GraphWriter {
 public:
  GraphWriter(onnx::GraphProto& graph, int64_t opset) : nodes_(graph), opset_(opset) {}

  // Gives the name of the layer's output.
  absl::StatusOr<std::string> AddLayer(const LayerSpec& layer, const LayerInfo& info,
                                       const LayerState& state, std::string input) {
    std::vector<std::string> values = {std::move(input)};
    const std::string name = UniqueName(layer.name);
    for (size_t i = 0; i < layer.ops.size(); ++i) {
      const std::string prefix = absl::StrCat(name, ".", i);
      std::vector<std::string> tensors;
      for (const StateTensorSpec& spec : info.state) {
        if (spec.op != static_cast<int>(i)) continue;
        RUNNEL_ASSIGN_OR_RETURN(tensors.emplace_back(), AddTensor(name, spec, state));
      }
      std::vector<std::string> inputs;
      for (const int32_t id : layer.ops[i].inputs)
        inputs.push_back(values[static_cast<size_t>(id)]);
      const auto read = static_cast<size_t>(layer.ops[i].inputs.front());
      const Shape& shape = read == 0 ? info.input : info.op_outputs[read - 1];
      const bool learns = layer.ops[i].kind == OpKind::kGate && !layer.ops[i].held;
      if (learns || layer.ops[i].kind == OpKind::kLstmCell)
        return absl::InvalidArgumentError(
            absl::StrCat("layer ", layer.name,
                         ": a gate that learns chooses in evaluation too, for which ONNX "
                         "has no operator"));
      // Of held gates evaluation runs all samples.
      if (const OpKind kind = layer.ops[i].kind;
          kind == OpKind::kGate || kind == OpKind::kPack || kind == OpKind::kUnpack) {
        values.push_back(inputs.front());
        continue;
      }
      // Before opset 11 a Gemm has a bias.
      const bool is_product =
          layer.ops[i].kind == OpKind::kLinear && !layer.ops[i].bias && opset_ <= kClipOpset;
      if (is_product || IsOfTokens(layer.ops[i], shape)) {
        inputs.insert(inputs.end(), tensors.begin(), tensors.end());
        values.push_back(AddTokenOp(layer.ops[i], shape, prefix, inputs, nodes_));
        continue;
      }
      if (layer.ops[i].kind == OpKind::kMultiply) {
        const auto factor = static_cast<size_t>(layer.ops[i].inputs.back());
        values.push_back(AddProduct(prefix, std::move(inputs), shape,
                                    factor == 0 ? info.input : info.op_outputs[factor - 1]));
        continue;
      }
      if (layer.ops[i].kind == OpKind::kSlice || layer.ops[i].kind == OpKind::kShuffle) {
        values.push_back(AddChannels(layer.ops[i], prefix, inputs.front(), shape));
        continue;
      }
      values.push_back(AddOp(layer.ops[i], prefix, std::move(inputs), tensors, shape.rank() - 2));
      values.back() = AddCompensation(state, layer.OpName(i), prefix, values.back());
    }
    return values.back();
  }

 private:
  // Layers of the user's own may have equal names.
  std::string UniqueName(const std::string& name) {
    if (names_.insert(name).second) return name;
    return UniqueName(absl::StrCat(name, "_", names_.size()));
  }

  absl::StatusOr<std::string> AddTensor(const std::string& layer, const StateTensorSpec& spec,
                                        const LayerState& state) {
    for (const TensorData& tensor : state.tensors) {
      if (tensor.name != spec.name || tensor.dtype != DType::kFloat32) continue;
      onnx::TensorProto& written = *nodes_.graph().add_initializer();
      written.set_name(absl::StrCat(layer, ".", spec.name));
      written.set_data_type(onnx::TensorProto::FLOAT);
      for (const int64_t dim : spec.shape.dims()) written.add_dims(dim);
      written.set_raw_data(tensor.bytes);
      return written.name();
    }
    return absl::InvalidArgumentError(absl::StrCat("layer ", layer, ": ", spec.name,
                                                   " is not in FP32; only recipes of floats have "
                                                   "weights that other engines read"));
  }

  // What recipe octo_lac adds to the operator's output; without it the output stays.
  std::string AddCompensation(const LayerState& state, absl::string_view op,
                              const std::string& name, const std::string& output) {
    std::vector<std::vector<float>> terms;
    Shape shape;
    for (const char* term : {"gain", "compensation", "offset"}) {
      for (const TensorData& tensor : state.tensors) {
        if (tensor.name != absl::StrCat(op, ".", term)) continue;
        terms.emplace_back(tensor.bytes.size() / sizeof(float));
        std::memcpy(terms.back().data(), tensor.bytes.data(), tensor.bytes.size());
        shape = tensor.shape;
      }
    }
    if (terms.size() != 3) return output;
    for (size_t i = 0; i < terms[0].size(); ++i)
      terms[0][i] = terms[0][i] * terms[1][i] + terms[2][i];
    onnx::TensorProto& added = *nodes_.graph().add_initializer();
    added.set_name(absl::StrCat(name, ".compensation"));
    added.set_data_type(onnx::TensorProto::FLOAT);
    for (const int64_t dim : shape.dims()) added.add_dims(dim);
    added.set_raw_data(std::string(reinterpret_cast<const char*>(terms[0].data()),
                                   terms[0].size() * sizeof(float)));
    return nodes_.Value("Add", absl::StrCat(name, ".compensated"), {output, added.name()});
  }

  void SetWindow(onnx::NodeProto& node, const OpSpec& op, int spatial) {
    const auto axes = [spatial](const std::array<int64_t, 2>& both) {
      return absl::MakeConstSpan(both.data(), static_cast<size_t>(spatial));
    };
    SetInts(node, "kernel_shape", axes(op.kernel));
    SetInts(node, "strides", axes(op.stride));
    if (op.is_dilated()) SetInts(node, "dilations", axes(op.dilation));
    if (op.kind == OpKind::kAvgPool && !op.is_padded()) return;
    std::vector<int64_t> pads;
    for (int axis = 0; axis < spatial; ++axis)
      pads.push_back(op.padding[static_cast<size_t>(axis)]);
    for (int axis = 0; axis < spatial; ++axis) pads.push_back(op.end_padding(axis));
    SetInts(node, "pads", pads);
    if (op.kind == OpKind::kAvgPool) SetInt(node, "count_include_pad", op.counts_padding ? 1 : 0);
  }

  // Parts of channels, and the three nodes in which exporters write a shuffle.
  std::string AddChannels(const OpSpec& op, const std::string& name, const std::string& input,
                          const Shape& x) {
    const auto ints = [&](const char* what, const std::vector<int64_t>& values) {
      return nodes_.Ints(absl::StrCat(name, ".", what), values);
    };
    if (op.kind == OpKind::kSlice) {
      return nodes_.Value("Slice", name,
                          {input, ints("starts", {op.begin}),
                           ints("ends", {op.begin + op.out_channels}), ints("axes", {1})});
    }
    std::vector<int64_t> apart = {0, op.groups, x[1] / op.groups}, perm = {0, 2, 1};
    std::vector<int64_t> together = {0, x[1]};
    for (int axis = 2; axis < x.rank(); ++axis) {
      apart.push_back(x[axis]);
      together.push_back(x[axis]);
      perm.push_back(axis + 1);
    }
    const std::string groups =
        nodes_.Value("Reshape", absl::StrCat(name, ".groups"), {input, ints("apart", apart)});
    onnx::NodeProto& turned = nodes_.Add("Transpose", absl::StrCat(name, ".turned"), {groups});
    SetInts(turned, "perm", perm);
    return nodes_.Value("Reshape", name, {turned.output(0), ints("together", together)});
  }

  void AddClip(const std::string& name, const std::string& input) {
    onnx::NodeProto& node = nodes_.Add("Clip", name, {input});
    if (opset_ > kClipOpset) {
      node.add_input(nodes_.Scalar(absl::StrCat(name, ".min"), 0));
      node.add_input(nodes_.Scalar(absl::StrCat(name, ".max"), kRelu6));
      return;
    }
    SetFloat(node, "min", 0);
    SetFloat(node, "max", kRelu6);
  }

  // inputs: of the operator; tensors: its state, in the order of TensorRole.
  std::string AddOp(const OpSpec& op, const std::string& name, std::vector<std::string> inputs,
                    const std::vector<std::string>& tensors, int spatial) {
    const std::string input = inputs.front();
    inputs.insert(inputs.end(), tensors.begin(), tensors.end());
    switch (op.kind) {
      case OpKind::kConv: {
        onnx::NodeProto& node = nodes_.Add("Conv", name, inputs);
        SetWindow(node, op, spatial);
        SetInt(node, "group", op.groups);
        break;
      }
      case OpKind::kLinear:
        SetInt(nodes_.Add("Gemm", name, inputs), "transB", 1);
        break;
      case OpKind::kBatchNorm: {
        onnx::NodeProto& node = nodes_.Add("BatchNormalization", name, inputs);
        SetFloat(node, "epsilon", op.epsilon);
        SetFloat(node, "momentum", 1 - op.momentum);
        break;
      }
      case OpKind::kRelu:
      case OpKind::kAdd:
      case OpKind::kSigmoid:
        nodes_.Add(PlainName(op.kind), name, inputs);
        break;
      case OpKind::kRelu6:
        AddClip(name, input);
        break;
      case OpKind::kDropout:
        return input;
      case OpKind::kMaxPool:
        SetWindow(nodes_.Add("MaxPool", name, inputs), op, spatial);
        break;
      case OpKind::kAvgPool:
        SetWindow(nodes_.Add("AveragePool", name, inputs), op, spatial);
        break;
      case OpKind::kGlobalAvgPool: {
        const std::string pool = absl::StrCat(name, ".mean");
        nodes_.Add("GlobalAveragePool", pool, inputs);
        SetInt(nodes_.Add("Flatten", name, {absl::StrCat(pool, ".out")}), "axis", 1);
        break;
      }
      case OpKind::kHardSigmoid: {
        onnx::NodeProto& node = nodes_.Add("HardSigmoid", name, inputs);
        SetFloat(node, "alpha", 1.0 / 6);
        SetFloat(node, "beta", 0.5);
        break;
      }
      case OpKind::kLeakyRelu:
        SetFloat(nodes_.Add("LeakyRelu", name, inputs), "alpha", op.rate);
        break;
      case OpKind::kConcat:
        SetInt(nodes_.Add("Concat", name, inputs), "axis", 1);
        break;
      case OpKind::kFlatten:
        SetInt(nodes_.Add("Flatten", name, inputs), "axis", 1);
        break;
      default:  // AddLayer, AddTokenOp, AddProduct, AddChannels
        break;
    }
    return absl::StrCat(name, ".out");
  }

  // Factors of channels are (batch, channels) here, (batch, channels, 1, ...) there.
  std::string AddProduct(const std::string& name, std::vector<std::string> inputs, const Shape& x,
                         const Shape& factor) {
    if (factor.rank() < x.rank()) {
      std::vector<int64_t> dims(static_cast<size_t>(x.rank()), 1);
      dims[0] = dims[1] = 0;  // as they are
      inputs[1] = nodes_.Value("Reshape", absl::StrCat(name, ".factor"),
                               {inputs[1], nodes_.Ints(absl::StrCat(name, ".dims"), dims)});
    }
    return nodes_.Value("Mul", name, inputs);
  }

  NodeWriter nodes_;
  int64_t opset_;
  std::set<std::string> names_;
};

bool HasClips(const ModelSpec& model) {
  for (const LayerSpec& layer : model.layers) {
    for (const OpSpec& op : layer.ops) {
      if (op.kind == OpKind::kRelu6) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<std::string> ModelToOnnx(const ModelSpec& model, const ModelState& state,
                                        int64_t batch) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  if (state.layers.size() != model.layers.size())
    return absl::InvalidArgumentError("the state has another number of layers than the model");
  onnx::ModelProto onnx_model;
  const bool has_tokens = model.tokens() > 0;
  onnx_model.set_ir_version(has_tokens ? kTokenIrVersion : kIrVersion);
  onnx_model.set_producer_name("runnel");
  onnx_model.add_opset_import()->set_version(has_tokens        ? kTokenOpset
                                             : HasClips(model) ? kClipOpset
                                                               : kOpset);
  onnx::GraphProto& graph = *onnx_model.mutable_graph();
  graph.set_name(model.name);
  SetValue(*graph.add_input(), "input",
           has_tokens ? onnx::TensorProto::INT64 : onnx::TensorProto::FLOAT, model.input.dims(),
           batch);
  SetValue(*graph.add_output(), "logits", onnx::TensorProto::FLOAT,
           infos.back().op_outputs.back().dims().subspan(1), batch);
  GraphWriter writer(graph, onnx_model.opset_import(0).version());
  std::string value = "input";
  for (size_t i = 0; i < model.layers.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(
        value, writer.AddLayer(model.layers[i], infos[i], state.layers[i], std::move(value)));
  }
  // The last value has the name that users look for.
  graph.mutable_node(graph.node_size() - 1)->set_output(0, "logits");
  return Serialized(onnx_model);
}

std::string OnnxMetadata(const std::string& key, const std::string& value) {
  onnx::ModelProto model;
  onnx::StringStringEntryProto& property = *model.add_metadata_props();
  property.set_key(key);
  property.set_value(value);
  return model.SerializeAsString();
}

}  // namespace runnel
