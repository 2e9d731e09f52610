#include "kernels/ir/stage/op_nodes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {
namespace {

// (N,T,F) as (N*T,F): what products and the loss read row by row.
Shape RowsOf(const Shape& shape) {
  return shape.rank() == 3 ? Shape({shape[0] * shape[1], shape[2]}) : shape;
}

// A view of what stands before it, at the place of `node`.
OpNode ViewOf(const Recipe& recipe, const OpNode& node, const Shape& shape) {
  return {.layer = node.layer,
          .op = node.op,
          .spec = node.spec,
          .rule = recipe.Find(OpKind::kFlatten),
          .evaluates = node.evaluates,
          .shape = shape,
          .is_view = true,
          .reads_last = true,
          .gives_value = false};
}

// A linear operator on (N,T,F) stands between views as rows.
void AddNodes(const Recipe& recipe, const LayerInfo& info, const OpNode& node,
              std::vector<OpNode>& nodes) {
  if (node.spec->kind != OpKind::kLinear || node.shape.rank() != 3) {
    nodes.push_back(node);
    return;
  }
  const int32_t read = node.spec->inputs[0];
  OpNode& rows = nodes.emplace_back(
      ViewOf(recipe, node, RowsOf(read == 0 ? info.input : info.op_outputs[read - 1])));
  rows.reads_last = rows.gives_value = false;
  OpNode& product = nodes.emplace_back(node);
  product.shape = RowsOf(node.shape);
  product.reads_last = true;
  product.gives_value = false;
  OpNode& result = nodes.emplace_back(ViewOf(recipe, node, node.shape));
  result.gives_value = true;
}

absl::Status Error(const LayerSpec& spec, size_t op, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("layer ", spec.name, ", op ", op, " (", Name(spec.ops[op].kind), "): ", what));
}

}  // namespace

std::optional<ByProduct> ByProductOf(const OpNode& node) {
  const Shape& shape = node.shape;
  switch (node.rule->saved) {
    case Saved::kIndices:
      return ByProduct{DType::kUInt8, shape};
    case Saved::kInputOutputAndSums:
      return ByProduct{DType::kFloat32, {shape[0] * node.spec->heads * shape[1]}};
    case Saved::kInputAndStats: {
      const bool by_row = node.spec->kind == OpKind::kLayerNorm;
      const int64_t norms = by_row ? shape.elements() / shape[shape.rank() - 1] : shape[1];
      return ByProduct{DType::kFloat32, {2 * norms}};
    }
    case Saved::kNothing:
    case Saved::kInput:
    case Saved::kOtherInput:
    case Saved::kAllInputs:
    case Saved::kOutput:
      return std::nullopt;
  }
  return std::nullopt;
}

std::vector<BufferIndex> SavedOperands(const OpNode& node, size_t place) {
  const BufferIndex input = node.inputs[place];
  switch (node.rule->saved) {
    case Saved::kNothing:
      return {};
    case Saved::kInput:
      return {input};
    case Saved::kOtherInput:
      return {node.inputs[1 - place]};
    case Saved::kAllInputs:
      return node.inputs;
    case Saved::kOutput:
      return {node.output};
    case Saved::kInputAndStats:
      return {input, node.parameters[0], node.by_product};
    case Saved::kIndices:
      return {node.by_product};
    case Saved::kInputOutputAndSums:
      return {input, node.output, node.by_product};
  }
  return {};
}

GridRule StepGridOf(const Recipe& recipe, const OpNode& node, size_t i) {
  GridRule grid = *recipe.step_grid;
  const int stream = static_cast<int>(i) + 2;  // 1: of the weight's own grid
  if (recipe.step != OpCode::kFixedUpdate) {
    grid.draws = stream;
    return grid;
  }
  if (HasProducts(*node.spec) && node.grids == nullptr) grid.bits = 32;
  if (node.grids != nullptr && i == 0) grid.draws = stream;
  return grid;
}

absl::StatusOr<std::vector<OpNode>> NodesOf(const ModelSpec& model,
                                            const std::vector<LayerInfo>& infos, int first_layer,
                                            int last_layer, const Recipe& recipe) {
  std::vector<OpNode> nodes;
  const int front = model.frozen_front();
  for (int layer = first_layer; layer <= last_layer; ++layer) {
    const std::vector<OpSpec>& ops = model.layers[layer].ops;
    const bool frozen = model.layers[layer].frozen;
    std::vector<bool> read(ops.size() + 1);
    for (size_t op = 0; op < ops.size(); ++op) {
      const OpRule* rule = recipe.Find(ops[op].kind);
      for (int32_t id : ops[op].inputs) read[id] = true;
      const ProductGrids* grids =
          HasProducts(ops[op]) && !LeadsToGate(model.layers[layer], op)
              ? recipe.GridsAt(PlaceOf(model, infos, layer, static_cast<int>(op)), ops[op].kind)
              : nullptr;
      AddNodes(recipe, infos[layer],
               {.layer = layer,
                .op = static_cast<int>(op),
                .spec = &ops[op],
                .rule = rule,
                .grids = grids,
                .evaluates = frozen && layer < front,
                .shape = infos[layer].op_outputs[op],
                .learns_choice = ops[op].kind == OpKind::kGate && !ops[op].held},
               nodes);
      if (model.layers[layer].freezes(op) && layer >= front && ops[op].kind == OpKind::kBatchNorm)
        return Error(model.layers[layer], op, "cannot be frozen behind layers that are trained");
    }
    for (size_t op = 0; op + 1 < ops.size(); ++op) {
      if (!read[op + 1]) return Error(model.layers[layer], op, "nobody reads its output");
    }
  }
  const Shape& output = infos[last_layer].output;
  if (last_layer + 1 == model.layer_count() && output.rank() == 3)
    nodes.push_back(ViewOf(recipe, nodes.back(), RowsOf(output)));
  return nodes;
}

}  // namespace runnel
