#include "proto/base/model/model_spec.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
    {OpKind::kSigmoid, "sigmoid"},
    {OpKind::kHardSigmoid, "hard_sigmoid"},
    {OpKind::kLeakyRelu, "leaky_relu"},
    {OpKind::kMultiply, "multiply"},
    {OpKind::kConcat, "concat"},
    {OpKind::kSlice, "channel_slice"},
    {OpKind::kShuffle, "channel_shuffle"},
    {OpKind::kGate, "gate"},
    {OpKind::kPack, "pack_samples"},
    {OpKind::kUnpack, "unpack_samples"},
    {OpKind::kLstmCell, "lstm_cell"},
    {OpKind::kCarriedState, "carried_state"},
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

// The layer's first operator that reads the state of another layer or makes one.
std::optional<OpKind> FirstOfState(const LayerSpec& layer) {
  for (const OpSpec& op : layer.ops) {
    if (op.kind == OpKind::kCarriedState || op.kind == OpKind::kLstmCell) return op.kind;
  }
  return std::nullopt;
}

// carried_state reads the state of a layer in front, so its input leads nowhere.
bool ReadsInput(const LayerSpec& layer) {
  return std::any_of(layer.ops.begin(), layer.ops.end(), [](const OpSpec& op) {
    return op.kind != OpKind::kCarriedState &&
           std::find(op.inputs.begin(), op.inputs.end(), 0) != op.inputs.end();
  });
}

// A state that is read has been made, and stands beside the tensors between layers: it is none of
// them itself.
absl::Status CheckState(const ModelSpec& model) {
  if (StateEnters(model, 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model.name, ": an operator carried_state has no lstm_cell in front of it"));
  }
  for (const LayerSpec& layer : model.layers) {
    if (!ReadsInput(layer)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model ", model.name, ", layer ", layer.name,
                       ": no operator but carried_state reads the layer's input"));
    }
    if (layer.ops.back().kind == OpKind::kLstmCell) {
      return absl::InvalidArgumentError(
          absl::StrCat("model ", model.name, ", layer ", layer.name,
                       ": ends with lstm_cell; put an operator behind it that reads the state"));
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
  const auto add = [](std::string* out, const auto& row) { absl::StrAppend(out, row.name); };
  return absl::InvalidArgumentError(absl::StrCat("operator '", name, "' is not known; there are ",
                                                 absl::StrJoin(kOpNames, ", ", add)));
}

bool IsTrainable(TensorRole role) {
  return role != TensorRole::kRunningMean && role != TensorRole::kRunningVar &&
         role != TensorRole::kExponent && role != TensorRole::kKeptScales &&
         role != TensorRole::kInputRange && role != TensorRole::kWidths;
}

bool IsOfRecipe(TensorRole role) {
  return role == TensorRole::kExponent || role == TensorRole::kKeptScales ||
         role == TensorRole::kInputRange || role == TensorRole::kWidths ||
         role == TensorRole::kGain || role == TensorRole::kCompensation;
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

bool HasGates(const ModelSpec& model) {
  for (const LayerSpec& layer : model.layers) {
    for (const OpSpec& op : layer.ops) {
      if (op.kind == OpKind::kGate) return true;
    }
  }
  return false;
}

bool CarriesState(const ModelSpec& model) {
  for (size_t layer = 1; layer < model.layers.size(); ++layer) {
    if (FirstOfState(model.layers[layer]) == OpKind::kCarriedState) return true;
  }
  return false;
}

bool StateEnters(const ModelSpec& model, int layer) {
  for (; layer < model.layer_count(); ++layer) {
    const std::optional<OpKind> first = FirstOfState(model.layers[static_cast<size_t>(layer)]);
    if (first.has_value()) return first == OpKind::kCarriedState;
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
  RUNNEL_RETURN_IF_ERROR(CheckState(model));
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
