// Decoders that others wrote, read: layer norms, GELUs and attentions of many nodes.

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "partition/export/onnx_model.h"
#include "partition/import/onnx_model.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/partition/onnx_graph_writer.h"

namespace runnel::onnx_decoder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Graph = OnnxGraphWriter;

constexpr int64_t kPositions = 5, kFeatures = 8, kHeads = 2, kTokens = 11;

void Number(Graph& g, const std::string& name, float value) {
  onnx::TensorProto& tensor = *g.graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.add_float_data(value);
}

// (batch, positions) tokens become (batch, positions, features) with positions that a Range reads from
// a table of more rows, as nn.Embedding of torch.arange.
Graph Tokens() {
  Graph g;
  onnx::TypeProto::Tensor& type =
      *g.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::INT64);
  type.mutable_shape()->mutable_dim()->Clear();
  type.mutable_shape()->add_dim()->set_dim_param("n");
  type.mutable_shape()->add_dim()->set_dim_value(kPositions);
  g.Weight("tok.weight", {kTokens, kFeatures});
  g.Weight("pos.weight", {kPositions + 2, kFeatures});
  for (const auto& [name, value] : {std::pair("from", 0), {"by", 1}, {"second", 1}}) {
    onnx::TensorProto& tensor = *g.graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.add_int64_data(value);
  }
  g.Node("Shape", {"x"}, "shape");
  g.Node("Gather", {"shape", "second"}, "count");
  g.Node("Range", {"from", "count", "by"}, "places");
  g.Node("Gather", {"pos.weight", "places"}, "positions");
  g.Node("Gather", {"tok.weight", "x"}, "rows");
  g.Node("Add", {"rows", "positions"}, "a");
  return g;
}

// As PyTorch writes it before opset 17.
std::string Norm(Graph& g, const std::string& x, const std::string& name) {
  const auto part = [&](const char* suffix) { return absl::StrCat(name, ".", suffix); };
  g.Weight(part("weight"), {kFeatures});
  g.Weight(part("bias"), {kFeatures});
  Number(g, part("two"), 2);
  Number(g, part("eps"), 1e-5f);
  g.Ints(g.Node("ReduceMean", {x}, part("mean")), "axes", {-1});
  g.Node("Sub", {x, part("mean")}, part("centered"));
  g.Node("Pow", {part("centered"), part("two")}, part("square"));
  g.Ints(g.Node("ReduceMean", {part("square")}, part("variance")), "axes", {-1});
  g.Node("Add", {part("variance"), part("eps")}, part("guarded"));
  g.Node("Sqrt", {part("guarded")}, part("deviation"));
  g.Node("Div", {part("centered"), part("deviation")}, part("plain"));
  g.Node("Mul", {part("plain"), part("weight")}, part("scaled"));
  g.Node("Add", {part("scaled"), part("bias")}, name);
  return name;
}

std::string Linear(Graph& g, const std::string& x, const std::string& name, int64_t from,
                   int64_t to) {
  g.Weight(name + ".w", {from, to});
  g.Weight(name + ".bias", {to});
  g.Node("MatMul", {x, name + ".w"}, name + ".product");
  g.Node("Add", {name + ".bias", name + ".product"}, name);
  return name;
}

std::string Heads(Graph& g, const std::string& x, const std::vector<int64_t>& perm) {
  if (g.graph().name().empty()) {
    g.graph().set_name("decoder");
    g.Numbers("by_head", {1, -1, kHeads, kFeatures / kHeads});
    g.Numbers("whole", {1, kPositions, kFeatures});
  }
  g.Node("Reshape", {x, "by_head"}, x + ".heads");
  g.Ints(g.Node("Transpose", {x + ".heads"}, x + ".turned"), "perm", perm);
  return x + ".turned";
}

// Scores that are -inf where the mask is true.
void Attend(Graph& g, const std::string& q, const std::string& k, const std::string& v,
            const std::string& name, float scale) {
  const std::string queries = Heads(g, q, {0, 2, 1, 3}), keys = Heads(g, k, {0, 2, 1, 3});
  const std::string values = Heads(g, v, {0, 2, 1, 3});
  g.Ints(g.Node("Transpose", {keys}, name + ".keys"), "perm", {0, 1, 3, 2});
  onnx::TensorProto& mask = *g.graph().add_initializer();
  mask.set_name(name + ".mask");
  mask.set_data_type(onnx::TensorProto::BOOL);
  for (const int64_t dim : {int64_t{1}, int64_t{1}, kPositions, kPositions}) mask.add_dims(dim);
  for (int64_t i = 0; i < kPositions * kPositions; ++i)
    mask.add_int32_data(i % kPositions > i / kPositions ? 1 : 0);
  Number(g, name + ".scale", scale);
  Number(g, name + ".away", -std::numeric_limits<float>::infinity());
  g.Node("MatMul", {queries, name + ".keys"}, name + ".scores");
  g.Node("Mul", {name + ".scores", name + ".scale"}, name + ".scaled");
  g.Node("Where", {name + ".mask", name + ".away", name + ".scaled"}, name + ".masked");
  onnx::AttributeProto& axis =
      *g.Node("Softmax", {name + ".masked"}, name + ".shares").add_attribute();
  axis.set_name("axis");
  axis.set_i(-1);
  g.Node("MatMul", {name + ".shares", values}, name + ".mixed");
  g.Ints(g.Node("Transpose", {name + ".mixed"}, name + ".back"), "perm", {0, 2, 1, 3});
  g.Node("Reshape", {name + ".back", "whole"}, name);
}

// 0.5 * x * (1 + tanh(...)), with the cube as two products; `bent`: the operator.
std::string Gelu(Graph& g, const std::string& x, const std::string& name) {
  const auto part = [&](const char* suffix) { return absl::StrCat(name, ".", suffix); };
  Number(g, part("half"), 0.5f);
  Number(g, part("one"), 1);
  Number(g, part("k"), 0.044715f);
  Number(g, part("slope"), static_cast<float>(std::sqrt(2 / M_PI)));
  g.Node("Mul", {part("half"), x}, part("halved"));
  g.Node("Mul", {x, x}, part("square"));
  g.Node("Mul", {x, part("square")}, part("cube"));
  g.Node("Mul", {part("k"), part("cube")}, part("bent"));
  g.Node("Add", {x, part("bent")}, part("sum"));
  g.Node("Mul", {part("slope"), part("sum")}, part("inner"));
  g.Node("Tanh", {part("inner")}, part("tanh"));
  g.Node("Add", {part("tanh"), part("one")}, part("above"));
  g.Node("Mul", {part("halved"), part("above")}, name);
  return name;
}

constexpr float kScale = 0.5f;  // 1 / sqrt(8 / 2)

// One block with queries, keys and values of one linear operator, or of three.
Graph Decoder(bool apart, float scale = kScale) {
  Graph g = Tokens();
  const std::string norm = Norm(g, "a", "ln1");
  if (apart) {
    Attend(g, Linear(g, norm, "q", kFeatures, kFeatures),
           Linear(g, norm, "k", kFeatures, kFeatures), Linear(g, norm, "v", kFeatures, kFeatures),
           "attended", scale);
  } else {
    g.Numbers("sizes", {kFeatures, kFeatures, kFeatures});
    onnx::NodeProto& split =
        g.Node("Split", {Linear(g, norm, "qkv", kFeatures, 3 * kFeatures), "sizes"}, "q");
    split.add_output("k");
    split.add_output("v");
    onnx::AttributeProto& axis = *split.add_attribute();
    axis.set_name("axis");
    axis.set_i(2);
    Attend(g, "q", "k", "v", "attended", scale);
  }
  g.Node("Add", {"a", Linear(g, "attended", "proj", kFeatures, kFeatures)}, "b");
  const std::string hidden = Linear(g, Norm(g, "b", "ln2"), "up", kFeatures, 16);
  g.Node("Add", {"b", Linear(g, Gelu(g, hidden, "gelu"), "down", 16, kFeatures)}, "c");
  g.Weight("head", {kFeatures, kTokens});
  g.Node("MatMul", {Norm(g, "c", "ln"), "head"}, "y");
  g.Output("y");
  return g;
}

std::vector<std::string> Kinds(const ModelSpec& model) {
  std::vector<std::string> kinds;
  for (const LayerSpec& layer : model.layers) {
    for (const OpSpec& op : layer.ops) kinds.emplace_back(Name(op.kind));
  }
  return kinds;
}

TEST(OnnxDecoder, ReadsWhatExportersWriteInManyNodes) {
  std::vector<std::vector<std::string>> states;
  for (const bool apart : {false, true}) {
    SCOPED_TRACE(apart);
    const absl::StatusOr<OnnxModel> read = Decoder(apart).Read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(Kinds(read->model), ElementsAre("embedding", "layer_norm", "linear", "attention",
                                                "linear", "add", "layer_norm", "linear", "gelu",
                                                "linear", "add", "layer_norm", "linear"));
    EXPECT_EQ(read->model.input, Shape({kPositions}));
    EXPECT_EQ(read->model.tokens(), kTokens);
    EXPECT_EQ(read->model.classes, kTokens);
    // The embedding, the two halves of the block, the head.
    EXPECT_EQ(read->model.layer_count(), 4);
    const LayerSpec& attention = read->model.layers[1];
    EXPECT_EQ(attention.ops[2].heads, kHeads);
    EXPECT_EQ(attention.ops[1].out_channels, 3 * kFeatures);
    EXPECT_EQ(attention.ops[0].epsilon, 1e-5);
    EXPECT_TRUE(read->model.layers[0].ops[0].positions);
    const TensorData& positions = read->state.layers[0].tensors[1];
    EXPECT_EQ(positions.shape, Shape({kPositions, kFeatures}));
    states.push_back(Tensors(read->state));
    // Written and read again.
    const auto again = ModelFromOnnx(ModelToOnnx(read->model, read->state).value());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(Kinds(again->model), Kinds(read->model));
    EXPECT_EQ(Tensors(again->state), Tensors(read->state));
  }
  // Values and biases of the three, one behind the other.
  const std::string &bias = states[1][5], &part = bias.substr(0, kFeatures * 4);
  EXPECT_EQ(bias, part + part + part);
}

TEST(OnnxDecoder, WhatIsAnotherOperatorIsNamed) {
  EXPECT_THAT(
      Decoder(false, 0.25f).Refusal(),
      HasSubstr("node n_attended.shares (Softmax): scores times 0.25; 1 / sqrt(width) is 0.5"));
  const auto refusal = [](bool apart, const std::string& output, auto change) {
    Graph g = Decoder(apart);
    for (onnx::NodeProto& node : *g.graph().mutable_node()) {
      if (node.output(0) == output) change(node);
    }
    return g.Refusal();
  };
  EXPECT_THAT(refusal(false, "attended.mixed", [](auto& n) { n.set_input(1, "k.turned"); }),
              HasSubstr("queries, keys and values in another order"));
  EXPECT_THAT(refusal(true, "v.product", [](auto& n) { n.set_input(0, "a"); }),
              HasSubstr("queries, keys and values of different inputs"));
  EXPECT_THAT(refusal(false, "gelu.tanh", [](auto& n) { n.set_op_type("Erf"); }),
              HasSubstr("node n_gelu.tanh (Erf): of another sum than that in a GELU"));
  Graph dropped = Decoder(false);
  for (onnx::NodeProto& node : *dropped.graph().mutable_node()) {
    if (node.output(0) != "attended.mixed") continue;
    node.set_op_type("Dropout");
    node.mutable_input()->RemoveLast();
  }
  EXPECT_THAT(dropped.Refusal(), HasSubstr("(Dropout): shares with dropout 0.5; 0 is read"));
  EXPECT_THAT(refusal(false, "gelu", [](auto& n) { n.set_input(0, "up"); }), HasSubstr("inside"));
  EXPECT_THAT(refusal(false, "ln1.plain", [](auto& n) { n.set_input(1, "ln1.guarded"); }),
              HasSubstr("node n_ln1.plain (Div): of parts of two layer norms"));
}

// (norm * s + b + c) * m, as a network that scales its norms writes it.
TEST(OnnxDecoder, ConstantsBehindANormAreComposed) {
  Graph g = Tokens();
  for (const char* name : {"s", "b", "c", "m"}) g.Weight(name, {kFeatures});
  g.Node("LayerNormalization", {"a", "s", "b"}, "n");
  g.Node("Add", {"n", "c"}, "shifted");
  g.Node("Mul", {"shifted", "m"}, "scaled");
  g.Weight("head", {kFeatures, kTokens});
  g.Node("MatMul", {"scaled", "head"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_THAT(Kinds(read->model), ElementsAre("embedding", "layer_norm", "linear"));
  std::vector<float> scale(kFeatures), shift(kFeatures);
  for (int64_t i = 0; i < kFeatures; ++i) {
    const float weight = static_cast<float>(i) / 8;  // OnnxGraphWriter::Weight
    scale[static_cast<size_t>(i)] = weight * weight;
    shift[static_cast<size_t>(i)] = 2 * weight * weight;
  }
  const auto bytes = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  };
  const std::vector<std::string> tensors = Tensors(read->state);
  EXPECT_THAT(tensors, testing::Contains(bytes(scale)));
  EXPECT_THAT(tensors, testing::Contains(bytes(shift)));
}

TEST(OnnxDecoder, AValueThatOthersReadKeepsItsMeaning) {
  const auto refusal = [](const char* type, bool is_norm) {
    Graph g = Tokens();
    for (const char* name : {"s", "c"}) g.Weight(name, {kFeatures});
    g.Weight("w", {kFeatures, kFeatures});
    g.Node(is_norm ? "LayerNormalization" : "MatMul", {"a", is_norm ? "s" : "w"}, "h");
    g.Node(type, {"h", "c"}, "t");
    g.Node("Add", {"t", "h"}, "sum");
    g.Output("sum");
    return g.Refusal();
  };
  for (const bool is_norm : {false, true})
    EXPECT_THAT(refusal("Add", is_norm), HasSubstr("node n_t (Add)")) << is_norm;
  EXPECT_THAT(refusal("Mul", true), HasSubstr("or of a value that others read too"));
}

TEST(OnnxDecoder, ValuesAreMadeOnceAndBeforeTheyAreRead) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    Graph g = Tokens();
    g.Node("Identity", {from}, to);
    g.Node("Identity", {to}, "y");
    g.Output("y");
    return g.Refusal();
  };
  EXPECT_THAT(refusal("a", "a"), HasSubstr("'a' is made twice"));
  EXPECT_THAT(refusal("y", "z"), HasSubstr("'y' is read, and nothing before makes it"));
  Graph g = Tokens();
  for (const char* name : {"i0", "i1", "i2", "i3", "i4"}) Number(g, name, 1);
  g.Node("Slice", {"a", "i0", "i1", "i2", "i3", "i4"}, "y");
  g.Output("y");
  EXPECT_THAT(g.Refusal(), HasSubstr("(Slice)"));
}

// As one node (opset 20), or as x / 2 * (1 + erf(x / sqrt(2))).
TEST(OnnxDecoder, GelusByErfAreExact) {
  const auto read = [](auto add) {
    Graph g = Tokens();
    add(g);
    g.Weight("head", {kFeatures, kTokens});
    g.Node("MatMul", {"gelu", "head"}, "y");
    g.Output("y");
    return g.Read();
  };
  const auto node = [](const char* approximate) {
    return [approximate](Graph& g) {
      onnx::NodeProto& gelu = g.Node("Gelu", {"a"}, "gelu");
      if (approximate[0] == 0) return;
      onnx::AttributeProto& attribute = *gelu.add_attribute();
      attribute.set_name("approximate");
      attribute.set_s(approximate);
    };
  };
  const auto by_erf = [](Graph& g) {
    Number(g, "root", std::sqrt(2.0f));
    Number(g, "one", 1);
    Number(g, "half", 0.5f);
    g.Node("Div", {"a", "root"}, "inner");
    g.Node("Erf", {"inner"}, "erf");
    g.Node("Add", {"erf", "one"}, "above");
    g.Node("Mul", {"a", "above"}, "product");
    g.Node("Mul", {"product", "half"}, "gelu");
  };
  for (const absl::StatusOr<OnnxModel>& model :
       {read(by_erf), read(node("")), read(node("none")), read(node("tanh"))}) {
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_THAT(Kinds(model->model), ElementsAre("embedding", "gelu", "linear"));
  }
  const auto is_exact = [](const absl::StatusOr<OnnxModel>& model) {
    const ModelSpec& spec = model->model;
    return spec.layers[0].ops.size() > 1 ? spec.layers[0].ops[1].exact
                                         : spec.layers[1].ops[0].exact;
  };
  EXPECT_TRUE(is_exact(read(by_erf)));
  EXPECT_TRUE(is_exact(read(node(""))));
  EXPECT_FALSE(is_exact(read(node("tanh"))));
  EXPECT_THAT(read(node("sigmoid")).status().message(),
              HasSubstr("node n_gelu (Gelu): attribute approximate sigmoid"));
  // Written and read again.
  const absl::StatusOr<OnnxModel> ours = read(by_erf);
  EXPECT_TRUE(is_exact(ModelFromOnnx(ModelToOnnx(ours->model, ours->state).value())));
}

// As torch.nn.MultiheadAttention computes: positions in front of the batch, one product of all
// heads of all samples, three slices of one linear operator.
Graph PositionsFirst(bool causal) {
  Graph g = Tokens();
  g.Ints(g.Node("Transpose", {"a"}, "turned"), "perm", {1, 0, 2});
  const std::string all = Linear(g, "turned", "qkv", kFeatures, 3 * kFeatures);
  g.Numbers("two", {2});
  g.Numbers("one_by_one", {1});
  g.Numbers("by_head", {kPositions, kHeads, kFeatures / kHeads});
  int64_t at = 0;
  for (const char* part : {"q", "k", "v"}) {
    const std::string name = part;
    g.Numbers(name + ".begin", {at * kFeatures});
    g.Numbers(name + ".end", {++at * kFeatures});
    g.Node("Slice", {all, name + ".begin", name + ".end", "two", "one_by_one"}, name);
    g.Node("Reshape", {name, "by_head"}, name + ".heads");
    g.Ints(g.Node("Transpose", {name + ".heads"}, name + ".turned"), "perm",
           name == "k" ? std::vector<int64_t>{1, 2, 0} : std::vector<int64_t>{1, 0, 2});
  }
  Number(g, "root", std::sqrt(static_cast<float>(kFeatures / kHeads)));
  g.Node("Div", {"q.turned", "root"}, "scaled");
  g.Node("MatMul", {"scaled", "k.turned"}, "scores");
  if (causal) {
    onnx::TensorProto& mask = *g.graph().add_initializer();
    mask.set_name("mask");
    mask.set_data_type(onnx::TensorProto::FLOAT);
    for (const int64_t dim : {int64_t{1}, kPositions, kPositions}) mask.add_dims(dim);
    for (int64_t i = 0; i < kPositions * kPositions; ++i)
      mask.add_float_data(i % kPositions > i / kPositions ? -std::numeric_limits<float>::infinity()
                                                          : 0);
    g.Node("Add", {"scores", "mask"}, "masked");
  }
  g.Node("Softmax", {causal ? "masked" : "scores"}, "shares");
  g.Node("MatMul", {"shares", "v.turned"}, "mixed");
  g.Ints(g.Node("Transpose", {"mixed"}, "back"), "perm", {1, 0, 2});
  g.Numbers("as_rows", {kPositions, kFeatures});
  g.Numbers("by_place", {kPositions, 1, kFeatures});
  g.Node("Reshape", {"back", "as_rows"}, "attended");
  g.Weight("out", {kFeatures, kFeatures});
  g.Node("MatMul", {"attended", "out"}, "projected");
  g.Node("Reshape", {"projected", "by_place"}, "placed");
  g.Node("Add", {"turned", "placed"}, "sum");
  g.Ints(g.Node("Transpose", {"sum"}, "forth"), "perm", {1, 0, 2});
  g.Weight("head", {kFeatures, kTokens});
  g.Node("MatMul", {"forth", "head"}, "y");
  g.Output("y");
  return g;
}

TEST(OnnxDecoder, PositionsMayStandInFrontOfTheBatch) {
  for (const bool causal : {false, true}) {
    SCOPED_TRACE(causal);
    const absl::StatusOr<OnnxModel> read = PositionsFirst(causal).Read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(Kinds(read->model),
                ElementsAre("embedding", "linear", "attention", "linear", "add", "linear"));
    const auto bidirectional = [](const ModelSpec& model) {
      for (const LayerSpec& layer : model.layers) {
        for (const OpSpec& op : layer.ops) {
          if (op.kind == OpKind::kAttention) return op.heads == kHeads && op.bidirectional;
        }
      }
      return false;
    };
    EXPECT_EQ(bidirectional(read->model), !causal);
    const auto again = ModelFromOnnx(ModelToOnnx(read->model, read->state).value());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(bidirectional(again->model), !causal);
    EXPECT_EQ(Tensors(again->state), Tensors(read->state));
  }
  const auto refusal = [](const std::string& output, auto change) {
    Graph g = PositionsFirst(true);
    for (onnx::NodeProto& node : *g.graph().mutable_node()) {
      if (node.output(0) == output) change(node);
    }
    return g.Refusal();
  };
  EXPECT_THAT(
      refusal("sum", [](auto& n) { n.set_input(0, "a"); }),
      HasSubstr("node n_sum (Add): of inputs with the batch and the positions in two orders"));
  EXPECT_THAT(refusal("y", [](auto& n) { n.set_input(0, "sum"); }),
              HasSubstr("its output has the positions in front of the batch"));
  EXPECT_THAT(refusal("k.turned", [](auto& n) { n.mutable_attribute(0)->set_ints(2, 1); }),
              HasSubstr("no product of queries and keys by head"));
}

TEST(OnnxDecoder, OurDecodersComeBack) {
  for (const char* name : {"bigram", "transformer_tiny"}) {
    SCOPED_TRACE(name);
    const ModelSpec model = MakeModel(name).value();
    const ModelState state = InitialState(model, 3).value();
    const absl::StatusOr<OnnxModel> read = ModelFromOnnx(ModelToOnnx(model, state).value());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(Kinds(read->model), Kinds(model));
    EXPECT_EQ(Tensors(read->state), Tensors(state));
    EXPECT_EQ(read->model.classes, model.classes);
    EXPECT_EQ(CountMacs(read->model).value(), CountMacs(model).value());
  }
}

// Concat of one value is that value; of joined ones, with what was joined before read again.
TEST(OnnxDecoder, DenseBlocksJoinEachValueOnce) {
  Graph g;
  const auto join = [&](const std::vector<std::string>& inputs, const std::string& output) {
    onnx::AttributeProto& axis = *g.Node("Concat", inputs, output).add_attribute();
    axis.set_name("axis");
    axis.set_i(1);
  };
  std::vector<std::string> joined = {"x"};
  for (int i = 0; i < 4; ++i) {
    const std::string at = absl::StrCat(i);
    join(joined, "in" + at);
    g.Weight("w" + at, {2, 2 + 2 * i, 1, 1});
    g.Ints(g.Node("Conv", {"in" + at, "w" + at}, "out" + at), "kernel_shape", {1, 1});
    joined.push_back("out" + at);
  }
  join(joined, "all");
  g.Node("GlobalAveragePool", {"all"}, "mean");
  g.Node("Flatten", {"mean"}, "flat");
  g.Weight("head", {10, 5});
  g.Node("MatMul", {"flat", "head"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  const std::vector<std::string> kinds = Kinds(read->model);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "concat"), 4);
}

}  // namespace
}  // namespace runnel::onnx_decoder_test
