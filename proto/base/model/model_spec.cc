#include "proto/base/model/model_spec.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr struct {
  OpKind kind;
  const char* name;
} kOpNames[] = {
    {OpKind::kConv, "conv"},
    {OpKind::kLinear, "linear"},
    {OpKind::kBatchNorm, "batch_norm"},
    {OpKind::kRelu, "relu"},
    {OpKind::kRelu6, "relu6"},
    {OpKind::kDropout, "dropout"},
    {OpKind::kMaxPool, "max_pool"},
    {OpKind::kAvgPool, "avg_pool"},
    {OpKind::kGlobalAvgPool, "global_avg_pool"},
    {OpKind::kAdd, "add"},
    {OpKind::kFlatten, "flatten"},
    {OpKind::kEmbedding, "embedding"},
    {OpKind::kLayerNorm, "layer_norm"},
    {OpKind::kGelu, "gelu"},
    {OpKind::kAttention, "attention"},
};

// Shape inference of one layer, op by op. Messages name the layer and the op.
class LayerInference {
 public:
  LayerInference(const LayerSpec& layer, const Shape& input) : layer_(layer) {
    info_.input = input;
  }

  absl::StatusOr<LayerInfo> Run() {
    if (layer_.ops.empty() || layer_.ops.size() > kMaxOpsPerLayer) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", layer_.name, ": has ",
                                                     layer_.ops.size(), " operators, needs 1 to ",
                                                     kMaxOpsPerLayer));
    }
    RUNNEL_RETURN_IF_ERROR(CheckNames());
    for (op_ = 0; op_ < static_cast<int>(layer_.ops.size()); ++op_) {
      RUNNEL_RETURN_IF_ERROR(CheckInputs());
      RUNNEL_ASSIGN_OR_RETURN(Shape output, InferOp());
      info_.op_outputs.push_back(output);
    }
    info_.output = info_.op_outputs.back();
    return std::move(info_);
  }

 private:
  const OpSpec& spec() const { return layer_.ops[op_]; }
  const Shape& Value(int32_t id) const { return id == 0 ? info_.input : info_.op_outputs[id - 1]; }

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer_.name, ", op ", op_, " (", Name(spec().kind), "): ", what));
  }

  absl::Status CheckNames() const {
    const auto has_none = [](const OpSpec& op) { return op.name.empty(); };
    if (std::all_of(layer_.ops.begin(), layer_.ops.end(), has_none)) return absl::OkStatus();
    std::set<std::string> names;
    for (size_t op = 0; op < layer_.ops.size(); ++op) {
      if (names.insert(layer_.OpName(op)).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", layer_.name, ": two operators are ", "named ", layer_.OpName(op)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckInputs() const {
    const size_t expected = spec().kind == OpKind::kAdd ? 2 : 1;
    if (spec().inputs.size() != expected) {
      return Error(absl::StrCat("has ", spec().inputs.size(), " inputs, needs ", expected));
    }
    for (int32_t id : spec().inputs) {
      if (id < 0 || id > op_)
        return Error(absl::StrCat("reads value ", id, ", which is not there yet"));
    }
    return absl::OkStatus();
  }

  void AddState(const char* name, TensorRole role, const Shape& shape) {
    const auto op = static_cast<size_t>(op_);
    info_.state.push_back({absl::StrCat(layer_.OpName(op), ".", name), op_, role, shape});
    info_.state.back().frozen = layer_.freezes(op);
    if (IsTrainable(role)) info_.parameters += shape.elements();
  }

  // Each factor fits its shape's limit, their product need not fit an integer.
  absl::Status AddMacs(int64_t outputs, int64_t macs_per_output) {
    constexpr int64_t kLimit = int64_t{1} << 50;
    if (outputs > (kLimit - info_.macs) / macs_per_output) {
      return Error(absl::StrCat("the layer needs over ", kLimit, " multiply-accumulates"));
    }
    info_.macs += outputs * macs_per_output;
    return absl::OkStatus();
  }

  // Output length along one spatial axis.
  absl::StatusOr<int64_t> Window(int64_t length, int axis, int64_t padding) const {
    const int64_t kernel = spec().kernel[axis];
    const int64_t stride = spec().stride[axis];
    constexpr int64_t kLimit = int64_t{1} << 20;
    if (kernel < 1 || stride < 1 || padding < 0 || kernel > kLimit || stride > kLimit ||
        padding > kLimit) {
      return Error("kernel and stride must be at least 1, padding at least 0");
    }
    if (length + 2 * padding < kernel) {
      return Error(
          absl::StrCat("kernel ", kernel, " is larger than its input of ", length + 2 * padding));
    }
    return (length + 2 * padding - kernel) / stride + 1;
  }

  absl::StatusOr<Shape> Windowed(const Shape& in, int64_t channels, bool padded) const {
    if (in.rank() != 3 && in.rank() != 4)
      return Error(absl::StrCat("needs (N,C,L) or (N,C,H,W), got ", in.ToString()));
    absl::InlinedVector<int64_t, 4> dims = {in[0], channels};
    for (int axis = 0; axis < in.rank() - 2; ++axis) {
      RUNNEL_ASSIGN_OR_RETURN(int64_t length,
                              Window(in[axis + 2], axis, padded ? spec().padding[axis] : 0));
      dims.push_back(length);
    }
    absl::StatusOr<Shape> shape = Shape::Create(dims);
    if (!shape.ok()) return Error(shape.status().message());
    return shape;
  }

  absl::StatusOr<Shape> InferConv(const Shape& in) {
    const OpSpec& op = spec();
    if (in.rank() < 3) return Error("needs a spatial input");
    const int64_t in_channels = in[1];
    if (op.out_channels < 1 || op.groups < 1 || in_channels % op.groups != 0 ||
        op.out_channels % op.groups != 0) {
      return Error(absl::StrCat("channels ", in_channels, " -> ", op.out_channels, " do not fit ",
                                op.groups, " groups"));
    }
    RUNNEL_ASSIGN_OR_RETURN(Shape out, Windowed(in, op.out_channels, /*padded=*/true));
    absl::InlinedVector<int64_t, 4> weight = {op.out_channels, in_channels / op.groups,
                                              op.kernel[0]};
    if (in.rank() == 4) weight.push_back(op.kernel[1]);
    absl::StatusOr<Shape> weight_shape = Shape::Create(weight);
    if (!weight_shape.ok()) return Error(weight_shape.status().message());
    AddState("weight", TensorRole::kWeight, *weight_shape);
    if (op.bias) AddState("bias", TensorRole::kBias, {op.out_channels});
    RUNNEL_RETURN_IF_ERROR(AddMacs(out.elements(), weight_shape->elements() / op.out_channels));
    return out;
  }

  absl::StatusOr<Shape> InferLinear(const Shape& in) {
    const OpSpec& op = spec();
    if (in.rank() != 2 && in.rank() != 3)
      return Error(absl::StrCat("needs (N,F) or (N,T,F), got ", in.ToString()));
    const int64_t features = in[in.rank() - 1];
    absl::StatusOr<Shape> weight = Shape::Create({op.out_channels, features});
    if (!weight.ok()) return Error(weight.status().message());
    AddState("weight", TensorRole::kWeight, *weight);
    if (op.bias) AddState("bias", TensorRole::kBias, {op.out_channels});
    RUNNEL_RETURN_IF_ERROR(AddMacs(in.elements() / features, weight->elements()));
    return WithFeatures(in.dims().first(static_cast<size_t>(in.rank()) - 1), op.out_channels);
  }

  absl::StatusOr<Shape> InferEmbedding(const Shape& in) {
    if (in.rank() != 2) return Error(absl::StrCat("needs (N,T), got ", in.ToString()));
    absl::StatusOr<Shape> table = Shape::Create({spec().rows, spec().out_channels});
    if (!table.ok()) return Error(table.status().message());
    AddState("weight", TensorRole::kWeight, *table);
    if (spec().positions) {
      absl::StatusOr<Shape> places = Shape::Create({in[1], spec().out_channels});
      if (!places.ok()) return Error(places.status().message());
      AddState("positions", TensorRole::kPositions, *places);
    }
    return WithFeatures(in.dims(), spec().out_channels);
  }

  absl::StatusOr<Shape> InferLayerNorm(const Shape& in) {
    if (in.rank() != 2 && in.rank() != 3)
      return Error(absl::StrCat("needs (N,F) or (N,T,F), got ", in.ToString()));
    if (!(spec().epsilon > 0)) return Error("epsilon must be positive");
    const Shape features = {in[in.rank() - 1]};
    AddState("scale", TensorRole::kScale, features);
    AddState("shift", TensorRole::kShift, features);
    return in;
  }

  // Counted as if each position saw all.
  absl::StatusOr<Shape> InferAttention(const Shape& in) {
    if (in.rank() != 3 || in[2] % 3 != 0)
      return Error(absl::StrCat("needs (N,T,3F), got ", in.ToString()));
    const int64_t features = in[2] / 3;
    if (spec().heads < 1 || features % spec().heads != 0)
      return Error(absl::StrCat(features, " features do not fit ", spec().heads, " heads"));
    RUNNEL_RETURN_IF_ERROR(AddMacs(in[0] * in[1], 2 * in[1] * features));
    return WithFeatures(in.dims().first(2), features);
  }

  absl::StatusOr<Shape> WithFeatures(absl::Span<const int64_t> rows, int64_t features) const {
    std::vector<int64_t> dims(rows.begin(), rows.end());
    dims.push_back(features);
    absl::StatusOr<Shape> shape = Shape::Create(dims);
    if (!shape.ok()) return Error(shape.status().message());
    return shape;
  }

  // With less padding than kernel every window sees an element of the input.
  absl::StatusOr<Shape> InferMaxPool(const Shape& in) {
    if (in.rank() < 3) return Error("needs a spatial input");
    for (int axis = 0; axis < std::min(in.rank() - 2, 2); ++axis) {
      if (spec().padding[axis] >= spec().kernel[axis]) {
        return Error(absl::StrCat("padding ", spec().padding[axis], " must be below the kernel of ",
                                  spec().kernel[axis]));
      }
    }
    return Windowed(in, in[1], /*padded=*/true);
  }

  absl::StatusOr<Shape> InferBatchNorm(const Shape& in) {
    if (in.rank() < 2) return Error("needs a channel axis");
    if (!(spec().epsilon > 0) || !(spec().momentum >= 0 && spec().momentum <= 1)) {
      return Error("epsilon must be positive, momentum between 0 and 1");
    }
    const Shape channels = {in[1]};
    AddState("scale", TensorRole::kScale, channels);
    AddState("shift", TensorRole::kShift, channels);
    AddState("running_mean", TensorRole::kRunningMean, channels);
    AddState("running_var", TensorRole::kRunningVar, channels);
    return in;
  }

  absl::StatusOr<Shape> InferOp() {
    const Shape in = Value(spec().inputs[0]);
    switch (spec().kind) {
      case OpKind::kConv:
        return InferConv(in);
      case OpKind::kLinear:
        return InferLinear(in);
      case OpKind::kBatchNorm:
        return InferBatchNorm(in);
      case OpKind::kDropout:
        if (!(spec().rate >= 0 && spec().rate < 1)) return Error("rate must be in [0, 1)");
        return in;
      case OpKind::kRelu:
      case OpKind::kRelu6:
        return in;
      case OpKind::kMaxPool:
        return InferMaxPool(in);
      case OpKind::kAvgPool:
        if (in.rank() < 3) return Error("needs a spatial input");
        return Windowed(in, in[1], /*padded=*/false);
      case OpKind::kGlobalAvgPool:
        if (in.rank() < 3) return Error("needs a spatial input");
        return Shape({in[0], in[1]});
      case OpKind::kAdd:
        if (!(in == Value(spec().inputs[1]))) {
          return Error(
              absl::StrCat("adds ", in.ToString(), " to ", Value(spec().inputs[1]).ToString()));
        }
        return in;
      case OpKind::kFlatten:
        return Shape({in[0], in.elements() / in[0]});
      case OpKind::kEmbedding:
        return InferEmbedding(in);
      case OpKind::kLayerNorm:
        return InferLayerNorm(in);
      case OpKind::kGelu:
        return in;
      case OpKind::kAttention:
        return InferAttention(in);
    }
    return Error("is not known");
  }

  const LayerSpec& layer_;
  LayerInfo info_;
  int op_ = 0;
};

// Tokens are read by embeddings alone, and embeddings read nothing else.
absl::Status CheckTokens(const ModelSpec& model) {
  const bool takes_tokens = model.tokens() > 0;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const LayerSpec& spec = model.layers[static_cast<size_t>(layer)];
    for (size_t op = 0; op < spec.ops.size(); ++op) {
      const std::vector<int32_t>& inputs = spec.ops[op].inputs;
      const bool reads_samples =
          layer == 0 && std::find(inputs.begin(), inputs.end(), 0) != inputs.end();
      const bool is_embedding = spec.ops[op].kind == OpKind::kEmbedding;
      if (is_embedding == (takes_tokens && reads_samples)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", spec.name, ", op ", op, " (", Name(spec.ops[op].kind), "): ",
                       is_embedding ? "reads no samples; tokens are looked up where they enter"
                                    : "reads tokens, which an embedding has to look up first"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view Name(OpKind kind) {
  for (const auto& row : kOpNames) {
    if (row.kind == kind) return row.name;
  }
  return "?";
}

absl::StatusOr<OpKind> OpKindFromName(absl::string_view name) {
  for (const auto& row : kOpNames) {
    if (name == row.name) return row.kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("operator '", name, "' is not known"));
}

bool IsTrainable(TensorRole role) {
  return role != TensorRole::kRunningMean && role != TensorRole::kRunningVar &&
         role != TensorRole::kExponent && role != TensorRole::kKeptScales &&
         role != TensorRole::kInputRange;
}

std::string LayerSpec::OpName(size_t op) const {
  return ops[op].name.empty() ? absl::StrCat(op) : ops[op].name;
}

bool ModelSpec::has_batch_norm() const {
  for (const LayerSpec& layer : layers) {
    for (const OpSpec& op : layer.ops) {
      if (op.kind == OpKind::kBatchNorm) return true;
    }
  }
  return false;
}

int64_t ModelSpec::tokens() const {
  int64_t tokens = 0;
  if (layers.empty()) return tokens;
  for (const OpSpec& op : layers.front().ops) {
    if (op.kind != OpKind::kEmbedding) continue;
    tokens = tokens == 0 ? op.rows : std::min(tokens, op.rows);
  }
  return tokens;
}

int ModelSpec::frozen_front() const {
  const auto has_parameters = [](const OpSpec& op) {
    return op.kind == OpKind::kConv || op.kind == OpKind::kLinear ||
           op.kind == OpKind::kBatchNorm || op.kind == OpKind::kEmbedding ||
           op.kind == OpKind::kLayerNorm;
  };
  if (layers.empty() || !layers.front().frozen) return 0;
  int front = 0;
  while (front < layer_count() &&
         (layers[front].frozen ||
          std::none_of(layers[front].ops.begin(), layers[front].ops.end(), has_parameters))) {
    ++front;
  }
  return front;
}

absl::StatusOr<LayerInfo> InferLayer(const LayerSpec& layer, const Shape& input) {
  return LayerInference(layer, input).Run();
}

absl::StatusOr<std::vector<LayerInfo>> InferShapes(const ModelSpec& model, int64_t batch) {
  if (model.layers.empty() || model.layer_count() > kMaxLayers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model.name, ": has ", model.layer_count(), " layers, needs 1 to ", kMaxLayers));
  }
  if (batch < 1)
    return absl::InvalidArgumentError(absl::StrCat("batch size ", batch, " is below 1"));
  absl::StatusOr<Shape> shape = Shape::Create(model.input.Prepend(batch).dims());
  if (!shape.ok()) return shape.status();
  std::vector<LayerInfo> infos;
  for (const LayerSpec& layer : model.layers) {
    RUNNEL_ASSIGN_OR_RETURN(LayerInfo info, InferLayer(layer, *shape));
    *shape = info.output;
    infos.push_back(std::move(info));
  }
  RUNNEL_RETURN_IF_ERROR(CheckTokens(model));
  const bool has_positions = shape->rank() == 3;
  if ((shape->rank() != 2 && !has_positions) || (*shape)[shape->rank() - 1] != model.classes) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ": ends with ",
                                                   shape->ToString(), ", needs (batch, ",
                                                   model.classes, " classes)"));
  }
  if (LabelsPerSample(*shape) > kMaxLabelsPerSample) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ": ends with ",
                                                   shape->ToString(), ", over the limit of ",
                                                   kMaxLabelsPerSample, " labels a sample"));
  }
  return infos;
}

int64_t LabelsPerSample(const Shape& logits) { return logits.rank() == 3 ? logits[1] : 1; }

absl::StatusOr<int64_t> LabelsPerSample(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  return LabelsPerSample(infos.back().output);
}

absl::StatusOr<int64_t> CountParameters(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<LayerInfo> infos, InferShapes(model, 1));
  int64_t parameters = 0;
  for (const LayerInfo& info : infos) parameters += info.parameters;
  return parameters;
}

absl::StatusOr<int64_t> CountMacs(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<LayerInfo> infos, InferShapes(model, 1));
  int64_t macs = 0;
  for (const LayerInfo& info : infos) macs += info.macs;
  return macs;
}

}  // namespace runnel
