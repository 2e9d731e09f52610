#include "kernels/ir/operator_place.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

bool IsDepthwise(const LayerInfo& info, const OpSpec& op) {
  if (op.kind != OpKind::kConv || op.groups < 2) return false;
  const int32_t read = op.inputs[0];
  const Shape& x = read == 0 ? info.input : info.op_outputs[static_cast<size_t>(read) - 1];
  return op.groups == x[1];
}

// The operators with weights that lead to a value, from the last one to the layer's input or to an
// operator with two inputs.
std::vector<int> WeightsOnWayTo(const LayerSpec& layer, int32_t value) {
  std::vector<int> found;
  while (value > 0) {
    const int op = value - 1;
    const OpSpec& spec = layer.ops[static_cast<size_t>(op)];
    if (HasProducts(spec)) found.push_back(op);
    const bool moves_samples = spec.kind == OpKind::kPack || spec.kind == OpKind::kUnpack;
    if (spec.inputs.size() != 1 && !moves_samples) break;
    value = spec.inputs[0];
  }
  return found;
}

bool IsOnShortcut(const LayerSpec& layer, int op) {
  return std::any_of(layer.ops.begin(), layer.ops.end(), [&](const OpSpec& sum) {
    if (sum.kind != OpKind::kAdd) return false;
    std::vector<int> way = WeightsOnWayTo(layer, sum.inputs[0]);
    std::vector<int> other = WeightsOnWayTo(layer, sum.inputs[1]);
    if (way.size() > other.size()) std::swap(way, other);
    return way == std::vector<int>{op} && other.size() > 1;
  });
}

}  // namespace

bool HasProducts(const OpSpec& op) {
  return op.kind == OpKind::kConv || op.kind == OpKind::kLinear;
}

Place PlaceOf(const ModelSpec& model, const std::vector<LayerInfo>& infos, int layer, int op) {
  bool before = false, behind = false;
  for (int l = 0; l < model.layer_count(); ++l) {
    const std::vector<OpSpec>& ops = model.layers[static_cast<size_t>(l)].ops;
    for (int o = 0; o < static_cast<int>(ops.size()); ++o) {
      if (!HasProducts(ops[static_cast<size_t>(o)])) continue;
      before = before || std::pair(l, o) < std::pair(layer, op);
      behind = behind || std::pair(l, o) > std::pair(layer, op);
    }
  }
  if (!before) return Place::kFirst;
  if (!behind) return Place::kLast;
  const LayerSpec& spec = model.layers[static_cast<size_t>(layer)];
  if (IsDepthwise(infos[static_cast<size_t>(layer)], spec.ops[static_cast<size_t>(op)]))
    return Place::kDepthwise;
  return IsOnShortcut(spec, op) ? Place::kShortcut : Place::kInner;
}

}  // namespace runnel
