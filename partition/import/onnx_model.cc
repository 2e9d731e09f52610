#include "partition/import/onnx_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "partition/import/onnx_graph.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using import::Constant;
using import::FlatGraph;
using import::FlatOp;

bool HasProduct(const FlatOp& op) {
  return op.spec.kind == OpKind::kConv || op.spec.kind == OpKind::kLinear ||
         op.spec.kind == OpKind::kEmbedding;
}

// Which operators a layer begins with: at those behind which only one value is still read, and it
// is the newest, if the layer would have a product.
std::vector<size_t> LayerStarts(const FlatGraph& graph) {
  std::map<std::string, size_t> last_read;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const std::string& input : graph.ops[i].inputs) last_read[input] = i;
  }
  last_read[graph.output_name] = graph.ops.size();
  std::vector<size_t> cuts = {0};
  std::set<std::string> live = {graph.input_name};
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    live.insert(graph.ops[i].output);
    for (const std::string& input : graph.ops[i].inputs) {
      if (last_read[input] <= i) live.erase(input);
    }
    if (i + 1 < graph.ops.size() && live.size() == 1 && *live.begin() == graph.ops[i].output)
      cuts.push_back(i + 1);
  }
  cuts.push_back(graph.ops.size());
  // Pieces without a product go with the one before, the first with the one behind.
  std::vector<size_t> starts = {0};
  bool has_product = false;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    const bool piece_has =
        std::any_of(graph.ops.begin() + static_cast<int64_t>(cuts[c]),
                    graph.ops.begin() + static_cast<int64_t>(cuts[c + 1]), HasProduct);
    if (piece_has && has_product) starts.push_back(cuts[c]);
    has_product = has_product || piece_has;
  }
  return starts;
}

// The layer's name: that of its first product.
std::string NameOf(absl::Span<const FlatOp> ops, size_t index, std::set<std::string>& names) {
  const auto product = std::find_if(ops.begin(), ops.end(), HasProduct);
  std::string name = product == ops.end() ? "" : product->name;
  if (name.empty() || !names.insert(name).second) {
    name = absl::StrCat("layer", index);
    names.insert(name);
  }
  return name;
}

absl::StatusOr<LayerSpec> MakeLayer(absl::Span<const FlatOp> ops, const std::string& input,
                                    std::string name) {
  LayerSpec layer;
  layer.name = std::move(name);
  std::map<std::string, int32_t> ids = {{input, 0}};
  for (const FlatOp& flat : ops) {
    OpSpec op = flat.spec;
    for (const std::string& value : flat.inputs) {
      const auto found = ids.find(value);
      if (found == ids.end()) {
        return absl::InvalidArgumentError(absl::StrCat("layer ", layer.name, ": reads '", value,
                                                       "', which nothing before makes"));
      }
      op.inputs.push_back(found->second);
    }
    layer.ops.push_back(std::move(op));
    ids[flat.output] = static_cast<int32_t>(layer.ops.size());
  }
  return layer;
}

// The layer's tensors as its shapes ask for them.
absl::StatusOr<LayerState> StateOf(absl::Span<const FlatOp> ops, const LayerSpec& layer,
                                   const LayerInfo& info, int index) {
  LayerState state;
  state.layer = index;
  for (const StateTensorSpec& spec : info.state) {
    const auto& constants = ops[static_cast<size_t>(spec.op)].constants;
    const auto found = constants.find(spec.role);
    const bool fits =
        found != constants.end() && absl::MakeConstSpan(found->second.dims) == spec.shape.dims();
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", layer.name, ": ", spec.name, " is not ", spec.shape.ToString()));
    }
    const std::vector<float>& values = found->second.values;
    TensorData tensor{spec.name, DType::kFloat32, spec.shape, std::string(values.size() * 4, '\0')};
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    state.tensors.push_back(std::move(tensor));
  }
  return state;
}

absl::StatusOr<OnnxModel> ReadOnnxModel(absl::string_view bytes) {
  onnx::ModelProto file;
  if (bytes.size() > kMaxOnnxBytes ||
      !file.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !file.has_graph() ||
      file.graph().node_size() == 0) {
    return absl::InvalidArgumentError("is no ONNX model");
  }
  for (const onnx::OperatorSetIdProto& opset : file.opset_import()) {
    const bool is_own = opset.domain().empty() || opset.domain() == "ai.onnx";
    if (!is_own || opset.version() <= kNewestOnnxOpset) continue;
    return absl::InvalidArgumentError(absl::StrCat("is of opset ", opset.version(), "; up to ",
                                                   kNewestOnnxOpset,
                                                   " is read: export it with opset_version=17"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const FlatGraph graph, import::FlattenGraph(file.graph()));
  if (graph.ops.empty()) return absl::InvalidArgumentError("has no operators");
  OnnxModel result;
  ModelSpec& model = result.model;
  model.name = file.graph().name().empty() ? "onnx" : file.graph().name();
  model.input = graph.input;
  const std::vector<size_t> starts = LayerStarts(graph);
  std::set<std::string> names;
  std::string input = graph.input_name;
  std::vector<absl::Span<const FlatOp>> pieces;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : graph.ops.size();
    pieces.push_back(absl::MakeConstSpan(graph.ops).subspan(starts[i], end - starts[i]));
    RUNNEL_ASSIGN_OR_RETURN(model.layers.emplace_back(),
                            MakeLayer(pieces.back(), input, NameOf(pieces.back(), i, names)));
    input = pieces.back().back().output;
  }
  if (input != graph.output_name)
    return absl::InvalidArgumentError("its output is not what its last operator makes");
  const auto last = std::find_if(graph.ops.rbegin(), graph.ops.rend(), HasProduct);
  model.classes = last == graph.ops.rend() ? 0 : last->spec.out_channels;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  for (size_t i = 0; i < pieces.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(result.state.layers.emplace_back(),
                            StateOf(pieces[i], model.layers[i], infos[i], static_cast<int>(i)));
  }
  return result;
}

}  // namespace

absl::StatusOr<OnnxModel> ModelFromOnnx(absl::string_view bytes) {
  absl::StatusOr<OnnxModel> model = ReadOnnxModel(bytes);
  if (model.ok()) return model;
  // Names of nodes and tensors may hold line ends.
  return OneLine(model.status());
}

}  // namespace runnel
