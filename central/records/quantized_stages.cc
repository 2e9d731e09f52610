#include "central/records/quantized_stages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/int8_inference.h"
#include "proto/inference.pb.h"

namespace runnel {
namespace {

constexpr uint32_t kInputKind =
    1;  // NodeKind::kInput of kernels/models/graph/node.h, which is wire format

// Nodes first..last of the graph, which are layers first_layer..last_layer of the zoo's model.
struct Piece {
  int first = 0;
  int last = 0;
  int first_layer = 0;
  int last_layer = 0;
};

absl::Status CheckOrder(const proto::QuantizedGraph& graph, int layers) {
  int layer = 0;
  for (int i = 0; i < graph.nodes_size(); ++i) {
    const proto::QuantizedNode& node = graph.nodes(i);
    if (node.layer() < layer || node.layer() >= layers) {
      return absl::InvalidArgumentError(absl::StrCat("node ", i, " is of layer ", node.layer(),
                                                     ", which is not in ", layer, "..",
                                                     layers - 1));
    }
    layer = node.layer();
    for (const int32_t input : node.inputs()) {
      if (input >= 0 && input < i) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("node ", i, " reads node ", input, ", which is not before it"));
    }
  }
  if (graph.nodes_size() < 2) return absl::InvalidArgumentError("its graph has no nodes");
  return absl::OkStatus();
}

// By node: whether it is the last one of its layer and its value alone crosses to later layers.
std::vector<bool> CutsBehind(const proto::QuantizedGraph& graph) {
  const int count = graph.nodes_size();
  // last_read[i]: the last node that reads node i.
  std::vector<int> last_read(static_cast<size_t>(count), 0);
  for (int i = 0; i < count; ++i) {
    for (const int32_t input : graph.nodes(i).inputs()) last_read[static_cast<size_t>(input)] = i;
  }
  std::vector<bool> cuts(static_cast<size_t>(count), false);
  int before = 0;  // the last reader of all nodes before i
  for (int i = 0; i + 1 < count; ++i) {
    const bool is_border = graph.nodes(i).layer() != graph.nodes(i + 1).layer();
    // Nothing is computed yet of the samples.
    cuts[static_cast<size_t>(i)] = is_border && i > 0 && before <= i;
    before = std::max(before, last_read[static_cast<size_t>(i)]);
  }
  return cuts;
}

std::vector<Piece> PiecesOf(const proto::QuantizedGraph& graph, int layers) {
  const std::vector<bool> cuts = CutsBehind(graph);
  std::vector<Piece> pieces = {Piece()};
  for (int i = 0; i < graph.nodes_size(); ++i) {
    pieces.back().last = i;
    if (!cuts[static_cast<size_t>(i)]) continue;
    // Layers without a node belong to what they were folded into.
    const int next = graph.nodes(i + 1).layer();
    pieces.back().last_layer = next - 1;
    pieces.push_back({i + 1, i + 1, next, next});
  }
  pieces.back().last_layer = layers - 1;
  return pieces;
}

// Value ids of a layer: 0 is its input, j + 1 the output of op j.
LayerSpec Merged(const ModelSpec& model, const Piece& piece) {
  LayerSpec merged = model.layers[static_cast<size_t>(piece.first_layer)];
  for (int layer = piece.first_layer + 1; layer <= piece.last_layer; ++layer) {
    const auto before = static_cast<int32_t>(merged.ops.size());
    const LayerSpec& next = model.layers[static_cast<size_t>(layer)];
    for (OpSpec op : next.ops) {
      for (int32_t& input : op.inputs) input += before;
      merged.ops.push_back(std::move(op));
    }
  }
  if (piece.last_layer > piece.first_layer) {
    absl::StrAppend(&merged.name, "..", model.layers[static_cast<size_t>(piece.last_layer)].name);
  }
  return merged;
}

// (channels, height, width) of a value of shape (1, channels, ...).
void SetSample(const Shape& value, proto::QuantizedGraph& piece) {
  const int rank = value.rank();
  piece.add_sample(value[1]);
  piece.add_sample(rank == 4 ? value[2] : 1);
  piece.add_sample(rank == 4 ? value[3] : rank == 3 ? value[2] : 1);
}

// Takes the nodes out of `graph`; their codings stay. input: of the layer, for one sample.
proto::QuantizedGraph TakePiece(proto::QuantizedGraph& graph, const Piece& piece, int index,
                                const Shape& input) {
  proto::QuantizedGraph taken;
  SetSample(input, taken);
  taken.set_takes_codes(piece.first > 0);
  taken.set_gives_codes(piece.last + 1 < graph.nodes_size());
  if (piece.first > 0) {
    const proto::QuantizedNode& crossing = graph.nodes(piece.first - 1);
    proto::QuantizedNode& node = *taken.add_nodes();
    node.set_kind(kInputKind);
    node.set_scale(crossing.scale());
    node.set_zero(crossing.zero());
    node.set_max_code(crossing.max_code());
    node.set_layer(index);
  }
  const int offset = piece.first > 0 ? piece.first - 1 : 0;
  for (int i = piece.first; i <= piece.last; ++i) {
    proto::QuantizedNode& from = *graph.mutable_nodes(i);
    proto::QuantizedNode& node = *taken.add_nodes();
    node.Swap(&from);
    from.set_scale(node.scale());
    from.set_zero(node.zero());
    from.set_max_code(node.max_code());
    node.set_layer(index);
    for (int32_t& input : *node.mutable_inputs()) input -= offset;
  }
  return taken;
}

}  // namespace

absl::StatusOr<QuantizedStages> CutAtLayers(const ModelSpec& model, absl::string_view bytes) {
  proto::QuantizedGraph graph;
  if (!graph.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("its graph cannot be parsed");
  }
  RUNNEL_RETURN_IF_ERROR(CheckOrder(graph, model.layer_count()));
  QuantizedStages stages;
  stages.model = model;
  stages.model.layers.clear();
  const std::vector<Piece> pieces = PiecesOf(graph, model.layer_count());
  for (const Piece& piece : pieces) stages.model.layers.push_back(Merged(model, piece));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(stages.model, 1));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto index = static_cast<int>(i);
    std::string nodes = TakePiece(graph, pieces[i], index, infos[i].input).SerializeAsString();
    const auto size = static_cast<int64_t>(nodes.size());
    LayerState& layer = stages.state.layers.emplace_back();
    layer.layer = index;
    layer.tensors.push_back(
        {std::string(kNodesTensor), DType::kUInt8, Shape({size}), std::move(nodes)});
  }
  return stages;
}

}  // namespace runnel
