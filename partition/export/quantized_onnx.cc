#include "partition/export/quantized_onnx.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx/onnx_pb.h"
#include "partition/export/onnx_nodes.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Kind = IntegerNode::Kind;

constexpr int64_t kQdqOpset = 13;  // the first with a scale for each channel
constexpr int64_t kQdqIrVersion = 7;

absl::Status DoesNotFit(absl::string_view what) { return absl::InvalidArgumentError(what); }

// What the graph's value is, for one sample.
struct Value {
  std::string codes;  // int8; empty: it has none
  std::string reals;  // FP32
  int64_t channels = 0;
  std::array<int64_t, 2> size = {};  // height, width
  bool is_vector = false;            // (batch, channels), else (batch, channels, height, width)
};

struct CodeLimits {
  int32_t least = 0, most = 0;
};

// The codes that the node's value may have.
CodeLimits LimitsOf(const IntegerNode& node) {
  const CodeRange& range = node.codes;
  int32_t lowest = -range.max_code, highest = range.max_code;
  if (node.clamp != IntegerNode::Clamp::kNone) lowest = range.zero;
  if (node.clamp == IntegerNode::Clamp::kRelu6) {
    const double six = std::min(6.0 / range.scale, 1e6);
    highest = static_cast<int32_t>(std::min<int64_t>(highest, range.zero + std::llround(six)));
  }
  return {lowest, highest};
}

absl::Status CheckRange(const CodeRange& range) {
  const bool fits = std::isfinite(range.scale) && range.scale > 0 && range.max_code >= 1 &&
                    range.max_code <= 127 && std::abs(int64_t{range.zero}) <= range.max_code;
  return fits ? absl::OkStatus() : DoesNotFit("a scale or a code out of range");
}

// (out, height, width, in) to (out, in, height, width).
template <typename Numbers>
Numbers ChannelsFirst(const Numbers& weights, int64_t out, int64_t taps, int64_t in) {
  Numbers turned = weights;
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t i = 0; i < in; ++i)
        turned[static_cast<size_t>((o * in + i) * taps + tap)] =
            weights[static_cast<size_t>((o * taps + tap) * in + i)];
    }
  }
  return turned;
}

class IntegerWriter {
 public:
  IntegerWriter(onnx::GraphProto& graph, absl::Span<const IntegerNode> nodes)
      : nodes_(graph), from_(nodes) {}

  absl::Status AddSamples(const Shape& sample) {
    Value value;
    value.reals = "input";
    value.channels = sample[0];
    value.size = {sample.rank() > 2 ? sample[1] : 1,
                  sample.rank() > 1 ? sample[sample.rank() - 1] : 1};
    value.is_vector = sample.rank() == 1;
    // Signals have one row.
    if (sample.rank() == 2)
      value.reals = nodes_.Value("Unsqueeze", "rows", {"input", nodes_.Ints("rows.axes", {2})});
    if (sample.rank() > 3) return DoesNotFit("samples of over three axes");
    samples_ = value.reals;
    return AddCodes(from_[0], "samples", std::move(value));
  }

  absl::Status AddNode(size_t index) {
    const IntegerNode& node = from_[index];
    const std::string name = absl::StrCat("node", index);
    const size_t inputs = node.kind == Kind::kAdd ? 2 : 1;
    if (node.inputs.size() != inputs) return DoesNotFit("another number of inputs");
    for (const int32_t input : node.inputs) {
      if (input < 0 || static_cast<size_t>(input) >= index)
        return DoesNotFit("reads what is not before it");
    }
    RUNNEL_RETURN_IF_ERROR(CheckRange(node.codes));
    Value value = values_[static_cast<size_t>(node.inputs[0])];
    switch (node.kind) {
      case Kind::kConv:
        RUNNEL_RETURN_IF_ERROR(AddConv(node, name, value));
        break;
      case Kind::kMaxPool:
      case Kind::kAvgPool:
        RUNNEL_RETURN_IF_ERROR(AddPool(node, name, value));
        break;
      case Kind::kAdd:
        value.reals =
            nodes_.Value("Add", absl::StrCat(name, ".sum"),
                         {value.reals, values_[static_cast<size_t>(node.inputs[1])].reals});
        break;
      case Kind::kClamp:
        break;  // AddCodes has the limits
      case Kind::kFlatten:
        value.reals = Flattened(absl::StrCat(name, ".flat"), value);
        break;
      default:
        return DoesNotFit(absl::StrCat("kind ", static_cast<int>(node.kind)));
    }
    const bool is_last = index + 1 == from_.size();
    if (node.gives_logits && !is_last) return DoesNotFit("logits in the middle");
    if (!node.gives_logits) return AddCodes(node, name, std::move(value));
    values_.push_back(std::move(value));
    return absl::OkStatus();
  }

  // Gives the number of classes.
  absl::StatusOr<int64_t> End() {
    Value& last = values_.back();
    if (!last.is_vector) last.reals = Flattened("flat", last);
    nodes_.graph().mutable_node(nodes_.graph().node_size() - 1)->set_output(0, "logits");
    return last.channels;
  }

 private:
  std::string Flattened(const std::string& name, Value& value) {
    value.channels *= value.size[0] * value.size[1];
    value.size = {1, 1};
    if (value.is_vector) return value.reals;
    value.is_vector = true;
    onnx::NodeProto& flat = nodes_.Add("Flatten", name, {value.reals});
    SetInt(flat, "axis", 1);
    return flat.output(0);
  }

  // As codes, and as the numbers that these stand for. The codes are clipped, not the numbers: engines
  // compute a convolution in integers where codes follow on it.
  absl::Status AddCodes(const IntegerNode& node, const std::string& name, Value value) {
    RUNNEL_RETURN_IF_ERROR(CheckRange(node.codes));
    const auto part = [&](const char* suffix) { return absl::StrCat(name, ".", suffix); };
    const CodeLimits limits = LimitsOf(node);
    const std::string scale = nodes_.Scalar(part("scale"), node.codes.scale);
    const std::string zero = nodes_.Bytes(part("zero"), {}, {node.codes.zero});
    const std::string all =
        nodes_.Value("QuantizeLinear", part("all_codes"), {value.reals, scale, zero});
    value.codes = nodes_.Value("Clip", part("codes"),
                               {all, nodes_.Bytes(part("least"), {}, {limits.least}),
                                nodes_.Bytes(part("most"), {}, {limits.most})});
    value.reals = nodes_.Value("DequantizeLinear", name, {value.codes, scale, zero});
    values_.push_back(std::move(value));
    return absl::OkStatus();
  }

  // Scales of the weights, by output channel: a sum times s_x s_w is real.
  absl::StatusOr<std::vector<float>> WeightScales(const IntegerNode& node) const {
    const CodeRange& in = from_[static_cast<size_t>(node.inputs[0])].codes;
    std::vector<float> scales;
    for (const double factor : node.factors) {
      const double scale = factor * (node.gives_logits ? 1 : node.codes.scale) / in.scale;
      // A channel of zeros has factor 0; engines divide by scales.
      scales.push_back(std::max(static_cast<float>(scale), std::numeric_limits<float>::min()));
      if (!std::isfinite(scales.back())) return DoesNotFit("a factor out of range");
    }
    return scales;
  }

  absl::StatusOr<std::vector<std::string>> IntegerWeights(const IntegerNode& node,
                                                          const std::string& name,
                                                          absl::Span<const int64_t> dims) {
    const auto out = static_cast<size_t>(node.out_channels);
    if (node.bias.size() != out || node.factors.size() != out ||
        (!node.weight_zeros.empty() && node.weight_zeros.size() != out))
      return DoesNotFit("another number of biases, zeros or factors than channels");
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<float> scales, WeightScales(node));
    const auto part = [&](const char* suffix) { return absl::StrCat(name, ".", suffix); };
    const double in_scale = from_[static_cast<size_t>(node.inputs[0])].codes.scale;
    std::vector<float> bias_scales;
    for (const float scale : scales) bias_scales.push_back(static_cast<float>(scale * in_scale));
    std::vector<int32_t> zeros = node.weight_zeros;
    zeros.resize(out, 0);
    if (std::any_of(zeros.begin(), zeros.end(),
                    [](int32_t zero) { return std::abs(int64_t{zero}) > 127; }))
      return DoesNotFit("a weight's zero out of range");
    const int64_t taps = dims.size() > 2 ? dims[2] * dims[3] : 1;
    const std::string weights = nodes_.RawBytes(
        part("weight"), dims, ChannelsFirst(node.weights, node.out_channels, taps, dims[1]));
    const std::string weight_scales = nodes_.Floats(part("weight_scale"), scales);
    onnx::NodeProto& weight = nodes_.Add(
        "DequantizeLinear", part("weight.real"),
        {weights, weight_scales, nodes_.Bytes(part("weight_zero"), {node.out_channels}, zeros)});
    SetInt(weight, "axis", 0);
    const std::string real_weight = weight.output(0);
    onnx::NodeProto& bias = nodes_.Add(
        "DequantizeLinear", part("bias.real"),
        {nodes_.Words(part("bias"), node.bias), nodes_.Floats(part("bias_scale"), bias_scales)});
    SetInt(bias, "axis", 0);
    return std::vector<std::string>{real_weight, bias.output(0)};
  }

  absl::Status AddConv(const IntegerNode& node, const std::string& name, Value& value) {
    const auto& [kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w] = node.window;
    for (const int64_t size : node.window) {
      if (size < 0 || size > (int64_t{1} << 16)) return DoesNotFit("a window out of range");
    }
    const bool fits = kernel_h > 0 && kernel_w > 0 && node.out_channels > 0 && node.groups > 0 &&
                      node.out_channels <= (int64_t{1} << 24) && value.channels % node.groups == 0;
    if (!fits) return DoesNotFit("channels or a window out of range");
    const bool is_linear = value.is_vector;
    if (is_linear && (kernel_h * kernel_w != 1 || node.groups != 1))
      return DoesNotFit("a window over features");
    const int64_t in = value.channels / node.groups;
    const int64_t count = node.out_channels * kernel_h * kernel_w * in;
    const bool is_real = !node.real_weights.empty();
    const size_t there = is_real ? node.real_weights.size() : node.weights.size();
    if (there != static_cast<size_t>(count))
      return DoesNotFit("another number of weights than its shape has");
    std::vector<int64_t> dims = {node.out_channels, in};
    if (!is_linear) dims.insert(dims.end(), {kernel_h, kernel_w});
    // In FP32 it reads the samples themselves.
    std::vector<std::string> inputs = {is_real && node.inputs[0] == 0 ? samples_ : value.reals};
    if (is_real) {
      if (node.real_bias.size() != static_cast<size_t>(node.out_channels))
        return DoesNotFit("another number of biases than channels");
      inputs.push_back(nodes_.Floats(
          absl::StrCat(name, ".weight"),
          ChannelsFirst(node.real_weights, node.out_channels, kernel_h * kernel_w, in), dims));
      inputs.push_back(nodes_.Floats(absl::StrCat(name, ".bias"), node.real_bias));
    } else {
      RUNNEL_ASSIGN_OR_RETURN(const std::vector<std::string> weights,
                              IntegerWeights(node, name, dims));
      inputs.insert(inputs.end(), weights.begin(), weights.end());
    }
    const std::string sum = absl::StrCat(name, ".sum");
    if (is_linear) {
      SetInt(nodes_.Add("Gemm", sum, inputs), "transB", 1);
    } else {
      onnx::NodeProto& conv = nodes_.Add("Conv", sum, inputs);
      SetInts(conv, "kernel_shape", {kernel_h, kernel_w});
      SetInts(conv, "strides", {stride_h, stride_w});
      SetInts(conv, "pads", {pad_h, pad_w, pad_h, pad_w});
      SetInt(conv, "group", node.groups);
    }
    value.reals = absl::StrCat(sum, ".out");
    value.channels = node.out_channels;
    return is_linear ? absl::OkStatus() : Slide(node, value);
  }

  absl::Status AddPool(const IntegerNode& node, const std::string& name, Value& value) {
    if (value.is_vector) return DoesNotFit("a window over features");
    const auto& [kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w] = node.window;
    const bool is_max = node.kind == Kind::kMaxPool;
    onnx::NodeProto& pool =
        nodes_.Add(is_max ? "MaxPool" : "AveragePool", absl::StrCat(name, ".pool"), {value.reals});
    SetInts(pool, "kernel_shape", {kernel_h, kernel_w});
    SetInts(pool, "strides", {stride_h, stride_w});
    if (is_max) SetInts(pool, "pads", {pad_h, pad_w, pad_h, pad_w});
    value.reals = pool.output(0);
    return Slide(node, value);
  }

  static absl::Status Slide(const IntegerNode& node, Value& value) {
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t kernel = node.window[axis], stride = node.window[2 + axis];
      const int64_t room = value.size[axis] + 2 * node.window[4 + axis] - kernel;
      if (kernel < 1 || stride < 1 || room < 0) return DoesNotFit("a window larger than its input");
      value.size[axis] = room / stride + 1;
    }
    return absl::OkStatus();
  }

  NodeWriter nodes_;
  absl::Span<const IntegerNode> from_;
  std::vector<Value> values_;  // by node
  std::string samples_;
};

}  // namespace

absl::StatusOr<std::string> QuantizedToOnnx(const std::string& name, const Shape& sample,
                                            absl::Span<const IntegerNode> nodes, int64_t batch) {
  if (nodes.size() < 2 || nodes[0].kind != Kind::kInput || sample.rank() < 1)
    return DoesNotFit("is no graph of samples and nodes");
  onnx::ModelProto model;
  model.set_ir_version(kQdqIrVersion);
  model.set_producer_name("runnel");
  model.add_opset_import()->set_version(kQdqOpset);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name(name);
  SetValue(*graph.add_input(), "input", onnx::TensorProto::FLOAT, sample.dims(), batch);
  IntegerWriter writer(graph, nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const absl::Status status = i == 0 ? writer.AddSamples(sample) : writer.AddNode(i);
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat("node ", i, ": ", status.message()));
  }
  RUNNEL_ASSIGN_OR_RETURN(const int64_t classes, writer.End());
  SetValue(*graph.add_output(), "logits", onnx::TensorProto::FLOAT, {classes}, batch);
  return Serialized(model);
}

}  // namespace runnel
