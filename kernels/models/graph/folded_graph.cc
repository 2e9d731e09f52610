#include "kernels/models/graph/folded_graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

// Makes a model's graph, operator by operator.
class Folder {
 public:
  Folder(const ModelSpec& model, const ModelState& state, bool fold)
      : model_(model), state_(state), fold_(fold) {}

  absl::StatusOr<FoldedGraph> Fold() {
    RUNNEL_RETURN_IF_ERROR(CheckState(state_, model_, 0, model_.layer_count() - 1));
    RUNNEL_RETURN_IF_ERROR(CheckFinite("the check-point's state", state_));
    Node input;
    const Shape& sample = model_.input;
    input.shape.out_c = sample[0];
    input.shape.out_h = sample.rank() == 3 ? sample[1] : 1;
    input.shape.out_w = sample.rank() == 3 ? sample[2] : sample.rank() == 2 ? sample[1] : 1;
    RUNNEL_RETURN_IF_ERROR(Append(std::move(input), {}));
    values_ = {0};
    for (layer_ = 0; layer_ < model_.layer_count(); ++layer_) {
      values_ = {values_.back()};
      const std::vector<OpSpec>& ops = model_.layers[layer_].ops;
      Seal(0);
      for (op_ = 0; op_ < static_cast<int>(ops.size()); ++op_) {
        RUNNEL_RETURN_IF_ERROR(AddOp(ops[op_]));
        if (op_ + 1 < static_cast<int>(ops.size())) Seal(op_ + 1);
      }
    }
    return std::move(graph_);
  }

 private:
  // A node that more than one operator reads takes nothing in that follows it.
  void Seal(int value) {
    int readers = 0;
    for (const OpSpec& op : model_.layers[layer_].ops) {
      for (int32_t input : op.inputs) readers += input == value ? 1 : 0;
    }
    if (readers > 1) sealed_[values_[value]] = true;
  }

  const TensorData& Tensor(TensorRole role) const {
    static constexpr std::pair<TensorRole, const char*> kNames[] = {
        {TensorRole::kWeight, "weight"},
        {TensorRole::kBias, "bias"},
        {TensorRole::kScale, "scale"},
        {TensorRole::kShift, "shift"},
        {TensorRole::kRunningMean, "running_mean"},
        {TensorRole::kRunningVar, "running_var"}};
    const char* wanted = "";
    for (const auto& [known, name] : kNames) {
      if (known == role) wanted = name;
    }
    const std::string name = absl::StrCat(model_.layers[layer_].OpName(op_), ".", wanted);
    const std::vector<TensorData>& tensors = state_.layers[layer_].tensors;
    size_t i = 0;
    while (tensors[i].name != name) ++i;  // CheckState: it is there
    return tensors[i];
  }
  std::vector<float> Floats(TensorRole role) const {
    const TensorData& tensor = Tensor(role);
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }

  absl::Status Append(Node node, ConvWeights weights) {
    node.layer = layer_;
    node.op = op_;
    RUNNEL_RETURN_IF_ERROR(InferNode(graph_.nodes, node));
    graph_.nodes.push_back(node);
    graph_.weights.push_back(std::move(weights));
    sealed_.push_back(false);
    values_.push_back(static_cast<int>(graph_.nodes.size()) - 1);
    return absl::OkStatus();
  }
  int Source(const OpSpec& op, int i = 0) const { return values_[op.inputs[i]]; }
  Node Reading(NodeKind kind, const OpSpec& op) const {
    Node node;
    node.kind = kind;
    node.inputs[0] = Source(op);
    return node;
  }

  // Of signals the kernel's only axis is the width.
  void SetWindow(const OpSpec& op, bool padded, ConvShape& shape) const {
    const bool image = model_.input.rank() == 3;
    const int w = image ? 1 : 0;
    shape.kernel_w = op.kernel[w];
    shape.stride_w = op.stride[w];
    shape.pad_w = padded ? op.padding[w] : 0;
    if (!image) return;
    shape.kernel_h = op.kernel[0];
    shape.stride_h = op.stride[0];
    shape.pad_h = padded ? op.padding[0] : 0;
  }

  absl::Status AddProduct(const OpSpec& op) {
    const ConvShape& x = graph_.nodes[Source(op)].shape;
    if (op.kind == OpKind::kLinear && x.out_h * x.out_w > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", model_.layers[layer_].name, ", op ", op_,
                       " (linear): reads rows of a sample, INT8 inference whole ones"));
    }
    const std::string gain = absl::StrCat(model_.layers[layer_].OpName(op_), ".gain");
    for (const TensorData& tensor : state_.layers[layer_].tensors) {
      if (tensor.name != gain) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", model_.layers[layer_].name, ", op ", op_,
          " (conv): has a compensation, INT8 inference none; train with --recipe octo"));
    }
    Node node = Reading(NodeKind::kConv, op);
    node.shape.out_c = op.out_channels;
    if (op.kind == OpKind::kConv) {
      node.shape.groups = op.groups;
      SetWindow(op, /*padded=*/true, node.shape);
    }
    const std::vector<float> oihw = Floats(TensorRole::kWeight);
    ConvWeights weights;
    weights.weights.resize(oihw.size());
    const int64_t taps = node.shape.taps();
    const int64_t channels = static_cast<int64_t>(oihw.size()) / (op.out_channels * taps);
    for (int64_t o = 0; o < op.out_channels; ++o) {
      const int64_t row = o * channels * taps;
      ToChannelsLast(&oihw[row], taps, channels, &weights.weights[row]);
    }
    weights.bias = op.bias ? Floats(TensorRole::kBias) : std::vector<float>(op.out_channels, 0.0f);
    return Append(std::move(node), std::move(weights));
  }

  absl::Status AddBatchNorm(const OpSpec& op) {
    const int source = Source(op);
    const bool folds = fold_ && !sealed_[source] && graph_.nodes[source].clamp == Clamp::kNone &&
                       graph_.nodes[source].kind == NodeKind::kConv;
    if (!folds) {
      Node node = Reading(NodeKind::kConv, op);
      const int64_t channels = graph_.nodes[source].shape.out_c;
      node.shape.out_c = node.shape.groups = channels;
      ConvWeights identity;
      identity.weights.assign(channels, 1.0f);
      identity.bias.assign(channels, 0.0f);
      RUNNEL_RETURN_IF_ERROR(Append(std::move(node), std::move(identity)));
    } else {
      values_.push_back(source);
    }
    const std::vector<float> scale = Floats(TensorRole::kScale), shift = Floats(TensorRole::kShift);
    const std::vector<float> mean = Floats(TensorRole::kRunningMean);
    const std::vector<float> variance = Floats(TensorRole::kRunningVar);
    ConvWeights& folded = graph_.weights[values_.back()];
    const size_t row = folded.weights.size() / scale.size();
    for (size_t o = 0; o < scale.size(); ++o) {
      const double factor = double{scale[o]} / std::sqrt(double{variance[o]} + op.epsilon);
      for (size_t i = o * row; i < (o + 1) * row; ++i) {
        folded.weights[i] = static_cast<float>(double{folded.weights[i]} * factor);
      }
      folded.bias[o] =
          static_cast<float>((double{folded.bias[o]} - double{mean[o]}) * factor + shift[o]);
    }
    return absl::OkStatus();
  }

  absl::Status AddRelu(const OpSpec& op, Clamp clamp) {
    const int source = Source(op);
    Node& before = graph_.nodes[source];
    const bool takes = before.kind == NodeKind::kConv || before.kind == NodeKind::kAdd ||
                       before.kind == NodeKind::kAvgPool;
    if (takes && !sealed_[source] && before.clamp == Clamp::kNone) {
      before.clamp = clamp;
      values_.push_back(source);
      return absl::OkStatus();
    }
    Node node = Reading(NodeKind::kClamp, op);
    node.clamp = clamp;
    return Append(std::move(node), {});
  }

  // Windows that integers have.
  absl::Status CheckWindow(const OpSpec& op) const {
    const bool is_mean = op.kind == OpKind::kAvgPool;
    if (op.kind != OpKind::kConv && op.kind != OpKind::kMaxPool && !is_mean)
      return absl::OkStatus();
    const absl::string_view what = op.is_dilated()             ? "dilation"
                                   : op.pads_by_side()         ? "padding that differs by side"
                                   : is_mean && op.is_padded() ? "a mean over padding"
                                                               : "";
    if (what.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("layer ", model_.layers[layer_].name, ", op ",
                                                   op_, " (", Name(op.kind), "): ", what,
                                                   " has no form in INT8"));
  }

  absl::Status AddOp(const OpSpec& op) {
    RUNNEL_RETURN_IF_ERROR(CheckWindow(op));
    switch (op.kind) {
      case OpKind::kConv:
      case OpKind::kLinear:
        return AddProduct(op);
      case OpKind::kBatchNorm:
        return AddBatchNorm(op);
      case OpKind::kRelu:
        return AddRelu(op, Clamp::kRelu);
      case OpKind::kRelu6:
        return AddRelu(op, Clamp::kRelu6);
      case OpKind::kDropout:
        values_.push_back(Source(op));
        return absl::OkStatus();
      case OpKind::kMaxPool:
      case OpKind::kAvgPool: {
        const bool is_max = op.kind == OpKind::kMaxPool;
        Node node = Reading(is_max ? NodeKind::kMaxPool : NodeKind::kAvgPool, op);
        SetWindow(op, /*padded=*/is_max, node.shape);
        return Append(std::move(node), {});
      }
      case OpKind::kGlobalAvgPool: {
        Node node = Reading(NodeKind::kAvgPool, op);
        const ConvShape& x = graph_.nodes[Source(op)].shape;
        node.shape.kernel_h = x.out_h;
        node.shape.kernel_w = x.out_w;
        return Append(std::move(node), {});
      }
      case OpKind::kAdd: {
        Node node = Reading(NodeKind::kAdd, op);
        node.inputs[1] = Source(op, 1);
        return Append(std::move(node), {});
      }
      case OpKind::kFlatten: {
        const ConvShape& x = graph_.nodes[Source(op)].shape;
        if (x.out_h * x.out_w > 1) return Append(Reading(NodeKind::kFlatten, op), {});
        values_.push_back(Source(op));
        return absl::OkStatus();
      }
      case OpKind::kEmbedding:
      case OpKind::kLayerNorm:
      case OpKind::kGelu:
      case OpKind::kAttention:
      case OpKind::kSigmoid:
      case OpKind::kHardSigmoid:
      case OpKind::kLeakyRelu:
      case OpKind::kMultiply:
      case OpKind::kConcat:
      case OpKind::kSlice:
      case OpKind::kShuffle:
      case OpKind::kGate:
      case OpKind::kPack:
      case OpKind::kUnpack:
      case OpKind::kLstmCell:
      case OpKind::kCarriedState:
        break;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("operator ", Name(op.kind), " has no form in INT8"));
  }

  const ModelSpec& model_;
  const ModelState& state_;
  const bool fold_;
  FoldedGraph graph_;
  std::vector<bool> sealed_;  // by node
  std::vector<int> values_;   // of the layer: the node of each value id
  int layer_ = 0;
  int op_ = 0;
};

void Limit(Clamp clamp, std::vector<float>& values) {
  if (clamp == Clamp::kNone) return;
  const float highest = clamp == Clamp::kRelu6 ? 6.0f : INFINITY;
  for (float& value : values) value = std::min(std::max(value, 0.0f), highest);
}

// (group, tap, in, out): the inner loop goes over outputs.
std::vector<float> PackWeights(const ConvShape& s, const std::vector<float>& ohwi) {
  std::vector<float> packed(ohwi.size());
  const int64_t rows = s.taps() * s.group_in(), outs = s.group_out();
  for (int64_t o = 0; o < s.out_c; ++o) {
    float* group = &packed[o / outs * rows * outs];
    for (int64_t r = 0; r < rows; ++r) group[r * outs + o % outs] = ohwi[o * rows + r];
  }
  return packed;
}

void AddTap(const float* __restrict x, int64_t ins, const float* __restrict w, int64_t outs,
            float* __restrict y) {
  for (int64_t i = 0; i < ins; ++i, w += outs) {
    const float value = x[i];
    if (value == 0.0f) continue;
    for (int64_t o = 0; o < outs; ++o) y[o] += value * w[o];
  }
}

// One output position; y holds the bias.
void ConvAt(const ConvShape& s, const float* x, const float* packed, int64_t oh, int64_t ow,
            float* y) {
  const int64_t ins = s.group_in(), outs = s.group_out();
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    const int64_t ih = oh * s.stride_h - s.pad_h + kh;
    if (ih < 0 || ih >= s.in_h) continue;
    for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const int64_t iw = ow * s.stride_w - s.pad_w + kw;
      if (iw < 0 || iw >= s.in_w) continue;
      const float* pixel = x + (ih * s.in_w + iw) * s.in_c;
      for (int64_t g = 0; g < s.groups; ++g) {
        const int64_t tap = (g * s.taps() + kh * s.kernel_w + kw) * ins * outs;
        AddTap(pixel + g * ins, ins, packed + tap, outs, y + g * outs);
      }
    }
  }
}

// One output position of a pool.
void PoolAt(const Node& node, const float* x, int64_t oh, int64_t ow, float* y) {
  const ConvShape& s = node.shape;
  const bool is_max = node.kind == NodeKind::kMaxPool;
  for (int64_t c = 0; c < s.in_c; ++c) {
    double sum = 0;
    float largest = -INFINITY;
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      const int64_t ih = oh * s.stride_h - s.pad_h + tap / s.kernel_w;
      const int64_t iw = ow * s.stride_w - s.pad_w + tap % s.kernel_w;
      if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
      const float value = x[(ih * s.in_w + iw) * s.in_c + c];
      sum += value;
      largest = std::max(largest, value);
    }
    y[c] = is_max ? largest : static_cast<float>(sum / static_cast<double>(s.taps()));
  }
}

}  // namespace

void ToChannelsLast(const float* nchw, int64_t positions, int64_t channels, float* nhwc) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t p = 0; p < positions; ++p) nhwc[p * channels + c] = nchw[c * positions + p];
  }
}

absl::StatusOr<FoldedGraph> FoldModel(const ModelSpec& model, const ModelState& state,
                                      bool fold_batch_norm) {
  return Folder(model, state, fold_batch_norm).Fold();
}

FoldedExecutor::FoldedExecutor(const FoldedGraph& graph)
    : graph_(graph), values_(graph.nodes.size()), packed_(graph.nodes.size()) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].kind != NodeKind::kConv) continue;
    packed_[i] = PackWeights(graph.nodes[i].shape, graph.weights[i].weights);
  }
}

namespace {

// Sample `n` of a node whose output is a function of windows of its input.
void RunWindows(const Node& node, const ConvWeights& weights, const std::vector<float>& packed,
                const float* x, float* y) {
  const ConvShape& s = node.shape;
  for (int64_t oh = 0; oh < s.out_h; ++oh) {
    for (int64_t ow = 0; ow < s.out_w; ++ow, y += s.out_c) {
      if (node.kind == NodeKind::kConv) {
        std::copy(weights.bias.begin(), weights.bias.end(), y);
        ConvAt(s, x, packed.data(), oh, ow, y);
      } else {
        PoolAt(node, x, oh, ow, y);
      }
    }
  }
}

}  // namespace

void FoldedExecutor::Run(
    absl::Span<const float> samples, int64_t batch,
    const std::function<void(size_t node, absl::Span<const float> values)>& observe) {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const ConvShape& s = node.shape;
    const int64_t ins = s.in_h * s.in_w * s.in_c, outs = node.outputs();
    std::vector<float>& y = values_[i];
    y.resize(batch * outs);
    const std::vector<float>* x = i == 0 ? nullptr : &values_[node.inputs[0]];
    for (int64_t n = 0; n < batch; ++n) {
      switch (node.kind) {
        case NodeKind::kInput:
          ToChannelsLast(&samples[n * outs], s.out_h * s.out_w, s.out_c, &y[n * outs]);
          break;
        case NodeKind::kFlatten:
          // The same exchange with the roles of positions and channels changed.
          ToChannelsLast(&(*x)[n * ins], s.in_c, s.in_h * s.in_w, &y[n * outs]);
          break;
        case NodeKind::kAdd: {
          const std::vector<float>& other = values_[node.inputs[1]];
          for (int64_t j = n * outs; j < (n + 1) * outs; ++j) y[j] = (*x)[j] + other[j];
          break;
        }
        case NodeKind::kClamp:
          std::copy_n(&(*x)[n * ins], outs, &y[n * outs]);
          break;
        default:
          RunWindows(node, graph_.weights[i], packed_[i], &(*x)[n * ins], &y[n * outs]);
      }
    }
    Limit(node.clamp, y);
    observe(i, y);
  }
}

}  // namespace runnel::inference
