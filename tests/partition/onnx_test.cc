// Networks that others wrote, read; ours written and read again.

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "partition/export/npz_file.h"
#include "partition/export/onnx_model.h"
#include "partition/import/onnx_model.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/partition/onnx_graph_writer.h"

namespace runnel::onnx_test {
namespace {

using ::testing::AllOf;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Graph = OnnxGraphWriter;

TEST(Onnx, ModelsOfTheZooComeBack) {
  for (const char* name : {"lenet", "har_cnn", "mlp", "mobilenet_v2", "resnet38"}) {
    SCOPED_TRACE(name);
    const ModelSpec model = MakeModel(name).value();
    const ModelState state = InitialState(model, 3).value();
    const absl::StatusOr<std::string> bytes = ModelToOnnx(model, state);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const absl::StatusOr<OnnxModel> read = ModelFromOnnx(*bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->model.input, model.input);
    EXPECT_EQ(read->model.classes, model.classes);
    EXPECT_EQ(CountParameters(read->model).value(), CountParameters(model).value());
    EXPECT_EQ(CountMacs(read->model).value(), CountMacs(model).value());
    EXPECT_EQ(Tensors(read->state), Tensors(state));
    EXPECT_TRUE(CheckState(read->state, read->model, 0, read->model.layer_count() - 1).ok() ||
                read->state.layers[0].slots.empty());
  }
}

// Blocks stay whole, each convolution outside of them is a layer; the mean goes with what it is of.
TEST(Onnx, LayersAreCutWhereOneTensorCrosses) {
  const ModelSpec model = MakeModel("resnet38").value();
  const OnnxModel read =
      ModelFromOnnx(ModelToOnnx(model, InitialState(model, 3).value()).value()).value();
  ASSERT_EQ(read.model.layer_count(), model.layer_count());
  for (int i = 0; i + 2 < model.layer_count(); ++i) {
    const size_t layer = static_cast<size_t>(i);
    EXPECT_EQ(read.model.layers[layer].ops.size(), model.layers[layer].ops.size()) << i;
  }
  EXPECT_EQ(read.model.layers.back().ops.size(), 1u);
}

// Shapes and turned weights that exporters compute in the graph: x.view(x.size(0), -1), a linear
// operator by its transposed weight.
TEST(Onnx, NumbersThatTheGraphComputes) {
  Graph g;
  g.Weight("fc.weight", {5, 32});
  g.Node("Shape", {"x"}, "shape");
  for (const auto& [name, value] : {std::pair("zero", 0), {"less", -1}, {"axis", 0}}) {
    onnx::TensorProto& tensor = *g.graph().add_initializer();
    if (std::string(name) == "axis") tensor.add_dims(1);
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.add_int64_data(value);
  }
  g.Node("Gather", {"shape", "zero"}, "batch");
  g.Node("Unsqueeze", {"batch", "axis"}, "first");
  g.Node("Unsqueeze", {"less", "axis"}, "rest");
  g.Node("Concat", {"first", "rest"}, "to");
  g.Node("Reshape", {"x", "to"}, "flat");
  g.Ints(g.Node("Transpose", {"fc.weight"}, "turned"), "perm", {1, 0});
  g.Node("MatMul", {"flat", "turned"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->model.layer_count(), 1);
  const OpSpec& linear = read->model.layers[0].ops.back();
  EXPECT_EQ(linear.kind, OpKind::kLinear);
  EXPECT_EQ(linear.out_channels, 5);
  float second = 0;
  std::memcpy(&second, read->state.layers[0].tensors[0].bytes.data() + 4, 4);
  EXPECT_EQ(second, 1.0f / 8) << "turned twice, as it was";
  g.graph().mutable_initializer(1)->set_int64_data(0, 1);
  EXPECT_THAT(g.Refusal(), HasSubstr("a shape of 2,-1, which is not (batch, features)"));
}

// Squeeze-and-excite with 1x1 convolutions of the mean, hard-swish, joined branches.
TEST(Onnx, GatesAndBranches) {
  Graph g;
  g.Weight("stem.weight", {4, 2, 3, 3});
  g.Weight("down.weight", {2, 4, 1, 1});
  g.Weight("up.weight", {4, 2, 1, 1});
  g.Weight("side.weight", {3, 4, 1, 1});
  g.Weight("fc.weight", {11, 5});
  g.Ints(g.Node("Conv", {"x", "stem.weight"}, "stem"), "kernel_shape", {3, 3});
  g.Node("HardSwish", {"stem"}, "a");
  g.Node("GlobalAveragePool", {"a"}, "mean");
  g.Ints(g.Node("Conv", {"mean", "down.weight"}, "down"), "kernel_shape", {1, 1});
  g.Node("LeakyRelu", {"down"}, "bent");
  g.Ints(g.Node("Conv", {"bent", "up.weight"}, "up"), "kernel_shape", {1, 1});
  g.Node("Sigmoid", {"up"}, "gate");
  g.Node("Mul", {"gate", "a"}, "scaled");
  g.Ints(g.Node("Conv", {"scaled", "side.weight"}, "side"), "kernel_shape", {1, 1});
  onnx::NodeProto& join = g.Node("Concat", {"scaled", "side", "scaled"}, "joined");
  onnx::AttributeProto& axis = *join.add_attribute();
  axis.set_name("axis");
  axis.set_i(1);
  g.Node("GlobalAveragePool", {"joined"}, "end");
  g.Node("Flatten", {"end"}, "flat");
  g.Node("MatMul", {"flat", "fc.weight"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<std::string> kinds;
  for (const LayerSpec& layer : read->model.layers) {
    for (const OpSpec& op : layer.ops) kinds.emplace_back(Name(op.kind));
  }
  EXPECT_THAT(kinds, ElementsAre("conv", "hard_sigmoid", "multiply", "global_avg_pool", "linear",
                                 "leaky_relu", "linear", "sigmoid", "multiply", "conv", "concat",
                                 "concat", "global_avg_pool", "linear"));
  // Written and read again.
  const auto written = ModelToOnnx(read->model, read->state);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto again = ModelFromOnnx(*written);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(CountMacs(again->model).value(), CountMacs(read->model).value());
  EXPECT_EQ(Tensors(again->state), Tensors(read->state));
  axis.set_i(2);
  EXPECT_THAT(g.Refusal(), HasSubstr("n_joined (Concat): attribute axis"));
}

// conv - relu - [conv] + - mean - MatMul + bias - softmax.
Graph Small() {
  Graph g;
  g.Weight("features.0.weight", {3, 2, 3, 3});
  g.Weight("w2", {3, 3, 1, 1});
  g.Weight("w3", {3, 5});
  g.Weight("b3", {5});
  onnx::NodeProto& conv = g.Node("Conv", {"x", "features.0.weight"}, "a");
  g.Ints(conv, "kernel_shape", {3, 3});
  g.Ints(conv, "pads", {1, 1, 1, 1});
  g.Node("Relu", {"a"}, "b");
  g.Ints(g.Node("Conv", {"b", "w2"}, "c"), "kernel_shape", {1, 1});
  g.Node("Add", {"c", "b"}, "d");
  g.Node("GlobalAveragePool", {"d"}, "e");
  g.Node("Flatten", {"e"}, "f");
  g.Node("MatMul", {"f", "w3"}, "h");
  g.Node("Add", {"b3", "h"}, "i");
  g.Node("Softmax", {"i"}, "y");
  g.Output("y");
  return g;
}

TEST(Onnx, WhatExportersWrite) {
  const absl::StatusOr<OnnxModel> read = Small().Read();
  ASSERT_TRUE(read.ok()) << read.status();
  const ModelSpec& model = read->model;
  ASSERT_EQ(model.layer_count(), 3);
  EXPECT_EQ(model.layers[0].name, "features.0");
  EXPECT_EQ(model.classes, 5);
  EXPECT_THAT(model.layers[1].ops[1].inputs, ElementsAre(1, 0));
  EXPECT_EQ(model.layers[2].ops.back().kind, OpKind::kLinear);
  EXPECT_TRUE(model.layers[2].ops.back().bias);
  // (in, out) becomes (out, in).
  const TensorData& weight = read->state.layers[2].tensors[0];
  EXPECT_EQ(weight.shape, Shape({5, 3}));
  float second = 0;
  std::memcpy(&second, weight.bytes.data() + 4, 4);
  EXPECT_EQ(second, 5.0f / 8);
}

// All of it in one line.
TEST(Onnx, WhatIsNotSupportedIsNamed) {
  Graph g = Small();
  g.Node("Softplus", {"b"}, "z");
  onnx::NodeProto& dilated = g.Node("MaxPool", {"b"}, "zz");
  g.Ints(dilated, "kernel_shape", {1, 1});
  g.Ints(dilated, "dilations", {2, 2});
  EXPECT_THAT(g.Refusal(), AllOf(HasSubstr("node n_z (Softplus): this operator"),
                                 HasSubstr("node n_zz (MaxPool): attribute dilations 2,2"),
                                 HasSubstr("not supported: ")));
  Graph external = Small();
  external.graph().mutable_initializer(0)->set_data_location(onnx::TensorProto::EXTERNAL);
  EXPECT_THAT(external.Refusal(), HasSubstr("its numbers lie in another file"));
  Graph wrong = Small();
  wrong.graph().mutable_initializer(0)->set_dims(0, 4);
  EXPECT_THAT(wrong.Refusal(), HasSubstr("has not as many numbers as its shape"));
  EXPECT_THAT(std::string(ModelFromOnnx("hello").status().message()),
              HasSubstr("is no ONNX model"));
  onnx::ModelProto newer;
  ASSERT_TRUE(newer.ParseFromString(Small().bytes()));
  newer.add_opset_import()->set_version(kNewestOnnxOpset + 1);
  EXPECT_THAT(std::string(ModelFromOnnx(newer.SerializeAsString()).status().message()),
              HasSubstr("is of opset 24; up to 23 is read"));
}

TEST(Onnx, DamageNeverCrashes) {
  constexpr uint32_t kSeed = 20261125;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string good = Small().bytes();
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (uint32_t damage = 1 + random() % 3; damage > 0; --damage)
      text[random() % text.size()] = static_cast<char>(random());
    const absl::StatusOr<OnnxModel> read = ModelFromOnnx(text);
    if (!read.ok()) continue;
    ++accepted;
    EXPECT_TRUE(InferShapes(read->model, 2).ok());
  }
  EXPECT_GT(accepted, 10);
}

TEST(Onnx, IntegersAreNotWritten) {
  const ModelSpec model = MakeModel("lenet").value();
  ModelState state = InitialState(model, 3).value();
  state.layers[0].tensors[0].dtype = DType::kInt8;
  EXPECT_THAT(std::string(ModelToOnnx(model, state).status().message()),
              HasSubstr("layer conv1: 0.weight is not in FP32"));
}

// Every value that a node reads is there before it, as ONNX wants it.
TEST(Onnx, ModelsOfTokensAreWholeGraphs) {
  for (const char* name : {"bigram", "transformer_tiny"}) {
    SCOPED_TRACE(name);
    const ModelSpec model = MakeModel(name).value();
    const absl::StatusOr<std::string> bytes = ModelToOnnx(model, InitialState(model, 3).value());
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    onnx::ModelProto written;
    ASSERT_TRUE(written.ParseFromString(*bytes));
    EXPECT_EQ(written.opset_import(0).version(), 17);
    const onnx::GraphProto& graph = written.graph();
    EXPECT_EQ(graph.input(0).type().tensor_type().elem_type(), onnx::TensorProto::INT64);
    EXPECT_EQ(graph.output(0).type().tensor_type().shape().dim(2).dim_value(), model.classes);
    std::set<std::string> there = {"input"};
    std::map<std::string, int> nodes;
    for (const onnx::TensorProto& constant : graph.initializer())
      EXPECT_TRUE(there.insert(constant.name()).second) << constant.name();
    for (const onnx::NodeProto& node : graph.node()) {
      ++nodes[node.op_type()];
      for (const std::string& input : node.input()) EXPECT_TRUE(there.count(input) > 0) << input;
      for (const std::string& output : node.output())
        EXPECT_TRUE(there.insert(output).second) << output;
    }
    EXPECT_TRUE(there.count("logits") > 0);
    EXPECT_EQ(nodes["Gather"], 1);
    const int blocks = std::string(name) == "bigram" ? 0 : model.layer_count() - 2;
    EXPECT_EQ(nodes["Softmax"], blocks);
    EXPECT_EQ(nodes["Tanh"], blocks);
    EXPECT_EQ(nodes["LayerNormalization"], blocks > 0 ? 2 * blocks + 1 : 0);
  }
}

// The zip's own signatures, and NumPy's head with the shape.
TEST(Npz, HoldsAnArrayATensor) {
  const ModelSpec model = MakeModel("lenet").value();
  const ModelState state = InitialState(model, 3).value();
  const absl::StatusOr<std::string> bytes = StateToNpz(model, state);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->substr(0, 4), std::string("PK\x03\x04", 4));
  EXPECT_THAT(*bytes, AllOf(HasSubstr("conv1.0.weight.npy"), HasSubstr("'shape': (20, 1, 5, 5), }"),
                            HasSubstr(state.layers[5].tensors[0].bytes)));
}

}  // namespace
}  // namespace runnel::onnx_test
