#include "partition/export/onnx_model.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "onnx/onnx_pb.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int64_t kOpset = 13;
constexpr int64_t kIrVersion = 7;  // the first with opset 13
constexpr float kRelu6 = 6;

void SetInts(onnx::NodeProto& node, const char* name, absl::Span<const int64_t> values) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}

void SetInt(onnx::NodeProto& node, const char* name, int64_t value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

void SetFloat(onnx::NodeProto& node, const char* name, double value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(static_cast<float>(value));
}

// (batch, dims...)
void SetValue(onnx::ValueInfoProto& value, const char* name, absl::Span<const int64_t> dims) {
  value.set_name(name);
  onnx::TypeProto::Tensor& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("batch");
  for (const int64_t dim : dims) type.mutable_shape()->add_dim()->set_dim_value(dim);
}

// The graph of one model, node by node.
class GraphWriter {
 public:
  explicit GraphWriter(onnx::GraphProto& graph) : graph_(graph) {}

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
      const int spatial = (read == 0 ? info.input : info.op_outputs[read - 1]).rank() - 2;
      const OpKind kind = layer.ops[i].kind;
      if (kind == OpKind::kEmbedding || kind >= OpKind::kLayerNorm ||
          (kind == OpKind::kLinear && spatial > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("layer ", layer.name, ", op ", i, " (", Name(kind),
                         "): models of tokens cannot be written as ONNX; take NPZ"));
      }
      values.push_back(AddOp(layer.ops[i], prefix, std::move(inputs), tensors, spatial));
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
      onnx::TensorProto& written = *graph_.add_initializer();
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

  onnx::NodeProto& AddNode(const char* type, const std::string& name,
                           const std::vector<std::string>& inputs) {
    onnx::NodeProto& node = *graph_.add_node();
    node.set_op_type(type);
    node.set_name(name);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(absl::StrCat(name, ".out"));
    return node;
  }

  void SetWindow(onnx::NodeProto& node, const OpSpec& op, int spatial, bool is_padded) {
    const auto axes = [spatial](const std::array<int64_t, 2>& both) {
      return absl::MakeConstSpan(both.data(), static_cast<size_t>(spatial));
    };
    SetInts(node, "kernel_shape", axes(op.kernel));
    SetInts(node, "strides", axes(op.stride));
    if (!is_padded) return;
    std::vector<int64_t> pads;
    for (int side = 0; side < 2; ++side) {
      for (int axis = 0; axis < spatial; ++axis)
        pads.push_back(op.padding[static_cast<size_t>(axis)]);
    }
    SetInts(node, "pads", pads);
  }

  std::string Scalar(const std::string& name, float value) {
    onnx::TensorProto& written = *graph_.add_initializer();
    written.set_name(name);
    written.set_data_type(onnx::TensorProto::FLOAT);
    written.add_float_data(value);
    return name;
  }

  // inputs: of the operator; tensors: its state, in the order of TensorRole.
  std::string AddOp(const OpSpec& op, const std::string& name, std::vector<std::string> inputs,
                    const std::vector<std::string>& tensors, int spatial) {
    const std::string input = inputs.front();
    inputs.insert(inputs.end(), tensors.begin(), tensors.end());
    switch (op.kind) {
      case OpKind::kConv: {
        onnx::NodeProto& node = AddNode("Conv", name, inputs);
        SetWindow(node, op, spatial, true);
        SetInt(node, "group", op.groups);
        break;
      }
      case OpKind::kLinear:
        SetInt(AddNode("Gemm", name, inputs), "transB", 1);
        break;
      case OpKind::kBatchNorm: {
        onnx::NodeProto& node = AddNode("BatchNormalization", name, inputs);
        SetFloat(node, "epsilon", op.epsilon);
        SetFloat(node, "momentum", 1 - op.momentum);
        break;
      }
      case OpKind::kRelu:
        AddNode("Relu", name, inputs);
        break;
      case OpKind::kRelu6:
        AddNode("Clip", name,
                {input, Scalar(absl::StrCat(name, ".min"), 0),
                 Scalar(absl::StrCat(name, ".max"), kRelu6)});
        break;
      case OpKind::kDropout:
        return input;
      case OpKind::kMaxPool:
        SetWindow(AddNode("MaxPool", name, inputs), op, spatial, true);
        break;
      case OpKind::kAvgPool:
        SetWindow(AddNode("AveragePool", name, inputs), op, spatial, false);
        break;
      case OpKind::kGlobalAvgPool: {
        const std::string pool = absl::StrCat(name, ".mean");
        AddNode("GlobalAveragePool", pool, inputs);
        SetInt(AddNode("Flatten", name, {absl::StrCat(pool, ".out")}), "axis", 1);
        break;
      }
      case OpKind::kAdd:
        AddNode("Add", name, inputs);
        break;
      case OpKind::kFlatten:
        SetInt(AddNode("Flatten", name, inputs), "axis", 1);
        break;
      case OpKind::kEmbedding:
      case OpKind::kLayerNorm:
      case OpKind::kGelu:
      case OpKind::kAttention:
        break;
    }
    return absl::StrCat(name, ".out");
  }

  onnx::GraphProto& graph_;
  std::set<std::string> names_;
};

}  // namespace

absl::StatusOr<std::string> ModelToOnnx(const ModelSpec& model, const ModelState& state) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  if (state.layers.size() != model.layers.size())
    return absl::InvalidArgumentError("the state has another number of layers than the model");
  onnx::ModelProto onnx_model;
  onnx_model.set_ir_version(kIrVersion);
  onnx_model.set_producer_name("runnel");
  onnx_model.add_opset_import()->set_version(kOpset);
  onnx::GraphProto& graph = *onnx_model.mutable_graph();
  graph.set_name(model.name);
  SetValue(*graph.add_input(), "input", model.input.dims());
  SetValue(*graph.add_output(), "logits", {model.classes});
  GraphWriter writer(graph);
  std::string value = "input";
  for (size_t i = 0; i < model.layers.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(
        value, writer.AddLayer(model.layers[i], infos[i], state.layers[i], std::move(value)));
  }
  // The last value has the name that users look for.
  graph.mutable_node(graph.node_size() - 1)->set_output(0, "logits");
  std::string bytes;
  if (onnx_model.SerializeToString(&bytes)) return bytes;
  return absl::InvalidArgumentError("the model is larger than the 2 GiB that a file of ONNX holds");
}

}  // namespace runnel
