#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "partition/zoo/ops.h"
#include "partition/zoo/rewrites/pair.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kScale = 2;

// Appends operators to a layer that grows, and knows where the values of the old one are.
class LayerCopy {
 public:
  explicit LayerCopy(const LayerSpec& layer) : from_(layer), layer_{layer.name} {}

  OpSpec& Copy(size_t op) {
    OpSpec& copy = layer_.ops.emplace_back(from_.ops[op]);
    for (int32_t& input : copy.inputs) input = values_[static_cast<size_t>(input)];
    values_.push_back(last());
    return copy;
  }
  int32_t Append(OpSpec op, const std::string& name) {
    layer_.ops.push_back(std::move(op));
    layer_.ops.back().name = name;
    return last();
  }
  // Whoever reads the old layer's last copied value reads the new layer's last one.
  void Redirect() { values_.back() = last(); }
  // An old value that is gone was that of the new layer's last operator.
  void Skip() { values_.push_back(last()); }
  int32_t last() const { return static_cast<int32_t>(layer_.ops.size()); }
  LayerSpec& layer() { return layer_; }

 private:
  const LayerSpec& from_;
  LayerSpec layer_;
  std::vector<int32_t> values_ = {0};
};

OpSpec Thin(int32_t input, int64_t features, double init_std) {
  OpSpec op = zoo::Linear(input, features);
  op.init = InitKind::kNormal;
  op.init_std = init_std;
  return op;
}

LayerSpec WithPairs(const LayerSpec& layer, const std::vector<bool>& paired, int64_t rank) {
  LayerCopy copy(layer);
  for (size_t op = 0; op < layer.ops.size(); ++op) {
    const bool moved = static_cast<size_t>(copy.last()) != op;
    OpSpec& kept = copy.Copy(op);
    kept.frozen = true;
    if (moved) kept.name = absl::StrCat(op);
    if (!paired[op]) continue;
    const int32_t input = kept.inputs[0], linear = copy.last();
    const int32_t down = copy.Append(Thin(input, rank, kScale / static_cast<double>(rank)),
                                     absl::StrCat(op, kPairDown));
    const int32_t up =
        copy.Append(Thin(down, layer.ops[op].out_channels, 0), absl::StrCat(op, kPairUp));
    copy.Append(zoo::Add(linear, up), absl::StrCat(op, kPairSum));
    copy.Redirect();
  }
  return std::move(copy.layer());
}

// Reads what an attention makes, or makes what it reads.
bool IsOfAttention(const LayerSpec& layer, size_t op) {
  const int32_t read = layer.ops[op].inputs[0];
  if (read > 0 && layer.ops[static_cast<size_t>(read) - 1].kind == OpKind::kAttention) return true;
  return std::any_of(layer.ops.begin(), layer.ops.end(), [op](const OpSpec& other) {
    return other.kind == OpKind::kAttention && other.inputs[0] == static_cast<int32_t>(op) + 1;
  });
}

bool HasAttention(const ModelSpec& model) {
  for (const LayerSpec& layer : model.layers) {
    for (const OpSpec& op : layer.ops) {
      if (op.kind == OpKind::kAttention) return true;
    }
  }
  return false;
}

absl::Status CheckRank(int64_t rank, const ModelSpec& model, int layer, const LayerInfo& info) {
  for (const StateTensorSpec& spec : info.state) {
    const OpSpec& op = model.layers[layer].ops[static_cast<size_t>(spec.op)];
    if (op.kind != OpKind::kLinear || spec.role != TensorRole::kWeight) continue;
    const int64_t most = std::min(spec.shape[0], spec.shape[1]);
    if (rank <= most) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", layer, " (", model.layers[layer].name, "), op ", spec.op, ": ", spec.shape[1],
        " features become ", spec.shape[0], "; a pair's rank is at most ", most));
  }
  return absl::OkStatus();
}

// A pair's three operators stand behind their linear one and read what AddPairs has them read.
bool IsWholePair(const LayerSpec& layer, size_t down) {
  if (down < 1 || down + kPairOps > layer.ops.size()) return false;
  const auto id = static_cast<int32_t>(down);
  const OpSpec* ops = &layer.ops[down];
  return ops[-1].kind == OpKind::kLinear && ops[0].kind == OpKind::kLinear &&
         ops[1].kind == OpKind::kLinear && ops[2].kind == OpKind::kAdd &&
         ops[0].inputs == ops[-1].inputs && ops[1].inputs == std::vector<int32_t>{id + 1} &&
         ops[2].inputs == std::vector<int32_t>{id, id + 2};
}

absl::StatusOr<std::vector<float>> TakeFloats(LayerState& state, const std::string& name) {
  const auto found = std::find_if(state.tensors.begin(), state.tensors.end(),
                                  [&name](const TensorData& t) { return t.name == name; });
  if (found == state.tensors.end() || found->dtype != DType::kFloat32 ||
      found->bytes.size() != static_cast<size_t>(found->shape.elements()) * sizeof(float))
    return absl::InvalidArgumentError(absl::StrCat(name, " is not there in FP32"));
  std::vector<float> values(static_cast<size_t>(found->shape.elements()));
  std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
  state.tensors.erase(found);
  return values;
}

// weight += up down.
absl::Status MergePair(const LayerSpec& layer, size_t down_op, LayerState& state) {
  const auto name = [&](size_t op) { return absl::StrCat(layer.OpName(op), ".weight"); };
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<float> down, TakeFloats(state, name(down_op)));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<float> up, TakeFloats(state, name(down_op + 1)));
  for (TensorData& tensor : state.tensors) {
    if (tensor.name != name(down_op - 1) || tensor.dtype != DType::kFloat32) continue;
    const auto rank = static_cast<size_t>(layer.ops[down_op].out_channels);
    const size_t in = down.size() / rank, out = up.size() / rank;
    if (tensor.bytes.size() != in * out * sizeof(float)) break;
    for (size_t e = 0; e < in * out; ++e) {
      double sum = 0;
      for (size_t r = 0; r < rank; ++r)
        sum +=
            static_cast<double>(up[e / in * rank + r]) * static_cast<double>(down[r * in + e % in]);
      float value = 0;
      std::memcpy(&value, &tensor.bytes[e * sizeof(float)], sizeof(value));
      value = static_cast<float>(value + sum);
      std::memcpy(&tensor.bytes[e * sizeof(float)], &value, sizeof(value));
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layer ", layer.name, ": ", name(down_op - 1), " is not there in FP32"));
}

absl::StatusOr<LayerSpec> Merged(const LayerSpec& layer, LayerState& state) {
  LayerCopy copy(layer);
  for (size_t op = 0; op < layer.ops.size(); ++op) {
    if (!IsPairOf(layer, op, kPairDown)) {
      OpSpec& kept = copy.Copy(op);
      kept.name.clear();
      kept.frozen = false;
      continue;
    }
    if (!IsWholePair(layer, op))
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", layer.name, ", op ", op, ": no pair"));
    RUNNEL_RETURN_IF_ERROR(MergePair(layer, op, state));
    for (size_t part = 0; part < kPairOps; ++part) copy.Skip();
    op += kPairOps - 1;
  }
  state.slots.clear();
  return std::move(copy.layer());
}

}  // namespace

absl::StatusOr<ModelSpec> AddPairs(ModelSpec model, absl::string_view rank_text) {
  int64_t rank = 0;
  if (!absl::SimpleAtoi(rank_text, &rank) || rank < 1)
    return absl::InvalidArgumentError(absl::StrCat("'", rank_text, "' is no rank from 1"));
  if (HasPairs(model)) return absl::InvalidArgumentError("the model has such pairs already");
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  const bool has_attention = HasAttention(model);
  bool any = false;
  for (int i = 0; i < model.layer_count(); ++i) {
    LayerSpec& layer = model.layers[i];
    if (layer.frozen) continue;
    std::vector<bool> paired(layer.ops.size());
    for (size_t op = 0; op < paired.size(); ++op) {
      paired[op] =
          layer.ops[op].kind == OpKind::kLinear && (!has_attention || IsOfAttention(layer, op));
    }
    layer.frozen = std::find(paired.begin(), paired.end(), true) == paired.end();
    if (layer.frozen) continue;
    any = true;
    RUNNEL_RETURN_IF_ERROR(CheckRank(rank, model, i, infos[i]));
    layer = WithPairs(layer, paired, rank);
  }
  if (any) return model;
  return absl::InvalidArgumentError(
      absl::StrCat(model.name, " has no linear operator ", has_attention ? "of attention " : "",
                   "that is not frozen, beside which a pair could stand"));
}

bool HasPairs(const ModelSpec& model) {
  for (const LayerSpec& layer : model.layers) {
    for (size_t op = 0; op < layer.ops.size(); ++op) {
      if (IsPairOf(layer, op, kPairDown)) return true;
    }
  }
  return false;
}

absl::Status MergePairs(ModelSpec& model, ModelState& state) {
  if (!HasPairs(model)) return absl::OkStatus();
  if (state.layers.size() != model.layers.size())
    return absl::InvalidArgumentError("the state has another number of layers than the model");
  for (size_t i = 0; i < model.layers.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(model.layers[i], Merged(model.layers[i], state.layers[i]));
  }
  return absl::OkStatus();
}

}  // namespace runnel
