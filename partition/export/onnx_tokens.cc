#include "partition/export/onnx_tokens.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Softmax makes a share of exactly 0 of it.
constexpr float kMasked = -1e9f;
constexpr char kMask[] = "causal_mask";

std::string Embed(const std::string& name, const std::vector<std::string>& inputs,
                  NodeWriter& nodes) {
  const std::string rows =
      nodes.Value("Gather", absl::StrCat(name, ".rows"), {inputs[1], inputs[0]});
  return inputs.size() < 3 ? rows : nodes.Value("Add", name, {rows, inputs[2]});
}

std::string Project(const std::string& name, const std::vector<std::string>& inputs,
                    NodeWriter& nodes) {
  onnx::NodeProto& turned = nodes.Add("Transpose", absl::StrCat(name, ".turned"), {inputs[1]});
  SetInts(turned, "perm", {1, 0});
  const std::string product =
      nodes.Value("MatMul", absl::StrCat(name, ".product"), {inputs[0], turned.output(0)});
  return inputs.size() < 3 ? product : nodes.Value("Add", name, {product, inputs[2]});
}

// x / 2 * (1 + erf(x / sqrt(2))).
std::string ExactGelu(const std::string& name, const std::string& x, NodeWriter& nodes) {
  const auto part = [&](const char* suffix) { return absl::StrCat(name, ".", suffix); };
  const std::string inner =
      nodes.Value("Mul", part("inner"), {x, nodes.Scalar(part("s"), std::sqrt(0.5))});
  const std::string erf = nodes.Value("Erf", part("erf"), {inner});
  const std::string above = nodes.Value("Add", part("above"), {erf, nodes.Scalar(part("one"), 1)});
  const std::string half = nodes.Value("Mul", part("half"), {x, nodes.Scalar(part("h"), 0.5)});
  return nodes.Value("Mul", name, {half, above});
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).
std::string Gelu(const std::string& name, const std::string& x, NodeWriter& nodes) {
  const auto part = [&](const char* suffix) { return absl::StrCat(name, ".", suffix); };
  const std::string square = nodes.Value("Mul", part("square"), {x, x});
  const std::string cube = nodes.Value("Mul", part("cube"), {square, x});
  const std::string bent =
      nodes.Value("Mul", part("bent"), {cube, nodes.Scalar(part("c"), 0.044715)});
  const std::string sum = nodes.Value("Add", part("sum"), {x, bent});
  const std::string inner =
      nodes.Value("Mul", part("inner"), {sum, nodes.Scalar(part("s"), std::sqrt(2 / M_PI))});
  const std::string tanh = nodes.Value("Tanh", part("tanh"), {inner});
  const std::string above = nodes.Value("Add", part("above"), {tanh, nodes.Scalar(part("one"), 1)});
  const std::string half = nodes.Value("Mul", part("half"), {x, nodes.Scalar(part("h"), 0.5)});
  return nodes.Value("Mul", name, {half, above});
}

// One for all attentions, which have the same positions.
std::string CausalMask(int64_t positions, NodeWriter& nodes) {
  const auto& there = nodes.graph().initializer();
  if (std::any_of(there.begin(), there.end(), [](const auto& one) { return one.name() == kMask; }))
    return kMask;
  onnx::TensorProto& mask = *nodes.graph().add_initializer();
  mask.set_name(kMask);
  mask.set_data_type(onnx::TensorProto::FLOAT);
  for (int i = 0; i < 2; ++i) mask.add_dims(positions);
  for (int64_t t = 0; t < positions; ++t) {
    for (int64_t s = 0; s < positions; ++s) mask.add_float_data(s <= t ? 0 : kMasked);
  }
  return kMask;
}

// read: queries, keys and values side by side.
std::string Attend(const OpSpec& op, const Shape& read, const std::string& name,
                   const std::string& input, NodeWriter& nodes) {
  const int64_t positions = read[1], features = read[2] / 3, width = features / op.heads;
  const auto part = [&](const char* suffix) { return absl::StrCat(name, ".", suffix); };
  onnx::NodeProto& split = nodes.Add(
      "Split", part("parts"), {input, nodes.Ints(part("sizes"), {features, features, features})});
  SetInt(split, "axis", 2);
  split.add_output(part("keys.in"));
  split.add_output(part("values.in"));
  const std::vector<std::string> parts(split.output().begin(), split.output().end());
  const std::string by_head = nodes.Ints(part("by_head"), {0, positions, op.heads, width});
  const auto heads = [&](const std::string& value, const char* suffix,
                         absl::Span<const int64_t> order) {
    const std::string shaped =
        nodes.Value("Reshape", absl::StrCat(part(suffix), ".heads"), {value, by_head});
    onnx::NodeProto& turned = nodes.Add("Transpose", part(suffix), {shaped});
    SetInts(turned, "perm", order);
    return turned.output(0);
  };
  const std::string queries = heads(parts[0], "queries", {0, 2, 1, 3});
  const std::string keys = heads(parts[1], "keys", {0, 2, 3, 1});
  const std::string values = heads(parts[2], "values", {0, 2, 1, 3});
  const std::string scores = nodes.Value("MatMul", part("scores"), {queries, keys});
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const std::string scaled =
      nodes.Value("Mul", part("scaled"), {scores, nodes.Scalar(part("scale"), scale)});
  const std::string masked =
      op.bidirectional ? scaled
                       : nodes.Value("Add", part("masked"), {scaled, CausalMask(positions, nodes)});
  onnx::NodeProto& shares = nodes.Add("Softmax", part("shares"), {masked});
  SetInt(shares, "axis", 3);
  const std::string mixed = nodes.Value("MatMul", part("mixed"), {shares.output(0), values});
  onnx::NodeProto& back = nodes.Add("Transpose", part("back"), {mixed});
  SetInts(back, "perm", {0, 2, 1, 3});
  return nodes.Value("Reshape", name,
                     {back.output(0), nodes.Ints(part("whole"), {0, positions, features})});
}

}  // namespace

bool IsOfTokens(const OpSpec& op, const Shape& read) {
  return op.kind == OpKind::kEmbedding || op.kind == OpKind::kLayerNorm ||
         op.kind == OpKind::kGelu || op.kind == OpKind::kAttention ||
         (op.kind == OpKind::kLinear && read.rank() > 2);
}

std::string AddTokenOp(const OpSpec& op, const Shape& read, const std::string& name,
                       const std::vector<std::string>& inputs, NodeWriter& nodes) {
  switch (op.kind) {
    case OpKind::kEmbedding:
      return Embed(name, inputs, nodes);
    case OpKind::kLayerNorm: {
      onnx::NodeProto& node = nodes.Add("LayerNormalization", name, inputs);
      SetInt(node, "axis", -1);
      SetFloat(node, "epsilon", op.epsilon);
      return node.output(0);
    }
    case OpKind::kGelu:
      return op.exact ? ExactGelu(name, inputs.front(), nodes) : Gelu(name, inputs.front(), nodes);
    case OpKind::kAttention:
      return Attend(op, read, name, inputs.front(), nodes);
    default:
      return Project(name, inputs, nodes);
  }
}

}  // namespace runnel
