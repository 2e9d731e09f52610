#include "kernels/ir/passes/commute_pools.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace runnel {
namespace {

// The op that makes value `id` of the layer; null for the layer's input.
const OpSpec* MakerOf(const LayerSpec& layer, int32_t id) {
  return id == 0 ? nullptr : &layer.ops[static_cast<size_t>(id) - 1];
}

void CommuteIn(LayerSpec& layer) {
  std::vector<int> readers(layer.ops.size() + 1);
  for (const OpSpec& op : layer.ops) {
    for (int32_t id : op.inputs) ++readers[id];
  }
  for (OpSpec& pool : layer.ops) {
    if (pool.kind != OpKind::kMaxPool) continue;
    const int32_t relu_value = pool.inputs[0];
    if (relu_value == 0 || readers[relu_value] != 1) continue;
    OpSpec& relu = layer.ops[static_cast<size_t>(relu_value) - 1];
    if (relu.kind != OpKind::kRelu) continue;
    const OpSpec* before = MakerOf(layer, relu.inputs[0]);
    if (before != nullptr && before->kind == OpKind::kBatchNorm) continue;
    std::swap(relu, pool);
    std::swap(relu.inputs, pool.inputs);  // the places keep what they read
  }
}

}  // namespace

ModelSpec CommutePools(const ModelSpec& model) {
  ModelSpec commuted = model;
  for (LayerSpec& layer : commuted.layers) CommuteIn(layer);
  return commuted;
}

}  // namespace runnel
