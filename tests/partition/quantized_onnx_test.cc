// Models in integers written as ONNX: what engines read of them, judged by ONNX's own checker.

#include "partition/export/quantized_onnx.h"

#include <cstring>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/checker.h"
#include "onnx/onnx_pb.h"
#include "partition/export/onnx_model.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"

namespace runnel::quantized_onnx_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = IntegerNode::Kind;

// Empty: the checker has nothing to say.
std::string Complaint(const std::string& bytes) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return "cannot be parsed";
  try {
    onnx::checker::check_model(model);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Samples 2 x 4 x 4 - conv 3x3 with ReLU - max pool - add to itself - flatten - linear.
std::vector<IntegerNode> Small() {
  std::vector<IntegerNode> nodes(6);
  nodes[0].codes = {0.5, 0, 127};
  IntegerNode& conv = nodes[1];
  conv.kind = Kind::kConv;
  conv.inputs = {0};
  conv.clamp = IntegerNode::Clamp::kRelu;
  conv.window = {3, 3, 1, 1, 1, 1};
  conv.out_channels = 3;
  conv.codes = {0.25, -7, 127};
  for (int i = 0; i < 3 * 9 * 2; ++i) conv.weights.push_back(static_cast<char>(i - 20));
  conv.bias = {5, -6, 7};
  conv.factors = {0.125, 0.25, 0};
  nodes[2].kind = Kind::kMaxPool;
  nodes[2].inputs = {1};
  nodes[2].window = {2, 2, 2, 2, 0, 0};
  nodes[2].codes = conv.codes;
  nodes[3].kind = Kind::kAdd;
  nodes[3].inputs = {2, 2};
  nodes[3].codes = {0.5, 0, 31};
  nodes[4].kind = Kind::kFlatten;
  nodes[4].inputs = {3};
  nodes[4].codes = nodes[3].codes;
  IntegerNode& linear = nodes[5];
  linear.kind = Kind::kConv;
  linear.inputs = {4};
  linear.window = {1, 1, 1, 1, 0, 0};
  linear.out_channels = 2;
  linear.weights = std::string(2 * 12, '\3');
  linear.weight_zeros = {1, 0};
  linear.bias = {0, 1};
  linear.factors = {0.5, 0.25};
  linear.gives_logits = true;
  return nodes;
}

const Shape kSample = {2, 4, 4};

template <typename T>
std::vector<T> Values(const onnx::TensorProto& tensor) {
  std::vector<T> values(tensor.raw_data().size() / sizeof(T));
  std::memcpy(values.data(), tensor.raw_data().data(), tensor.raw_data().size());
  return values;
}

TEST(QuantizedOnnx, WeightsAreCodesWithTheScalesOfTheSums) {
  const absl::StatusOr<std::string> bytes = QuantizedToOnnx("small", kSample, Small());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(Complaint(*bytes), "");
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(*bytes));
  std::map<std::string, onnx::TensorProto> constants;
  for (const onnx::TensorProto& one : model.graph().initializer()) constants[one.name()] = one;
  const onnx::TensorProto& weight = constants["node1.weight"];
  EXPECT_EQ(weight.data_type(), onnx::TensorProto::INT8);
  EXPECT_THAT(weight.dims(), ElementsAre(3, 2, 3, 3));
  // (out, height, width, in) became (out, in, height, width).
  EXPECT_THAT(weight.raw_data().substr(0, 3), ElementsAre(-20, -18, -16));
  EXPECT_EQ(weight.raw_data()[9], -19);
  // factor * s_y / s_x; no scale is 0.
  const std::vector<float> scales = Values<float>(constants["node1.weight_scale"]);
  EXPECT_THAT(scales, ElementsAre(0.0625f, 0.125f, std::numeric_limits<float>::min()));
  EXPECT_THAT(Values<float>(constants["node1.bias_scale"]),
              ElementsAre(0.03125f, 0.0625f, ::testing::Gt(0)));
  EXPECT_THAT(Values<int32_t>(constants["node1.bias"]), ElementsAre(5, -6, 7));
  EXPECT_THAT(Values<float>(constants["node5.weight_scale"]), ElementsAre(1.0f, 0.5f));
  EXPECT_THAT(constants["node5.weight_zero"].raw_data(), ElementsAre(1, 0));
  // From the code of 0 to the largest; 6 bits of an addition.
  EXPECT_THAT(constants["node1.least"].raw_data(), ElementsAre(-7));
  EXPECT_THAT(constants["node1.most"].raw_data(), ElementsAre(127));
  EXPECT_THAT(constants["node3.least"].raw_data(), ElementsAre(-31));
  std::map<std::string, int> kinds;
  for (const onnx::NodeProto& node : model.graph().node()) ++kinds[node.op_type()];
  EXPECT_EQ(kinds["QuantizeLinear"], 5);
  EXPECT_EQ(kinds["Clip"], 5);
  EXPECT_EQ(kinds["DequantizeLinear"], 5 + 2 * 2);
  EXPECT_EQ(kinds["Gemm"], 1);
}

TEST(QuantizedOnnx, WhatDoesNotFitIsNamed) {
  const auto refusal = [](auto change) {
    std::vector<IntegerNode> nodes = Small();
    change(nodes);
    return std::string(QuantizedToOnnx("small", kSample, nodes).status().message());
  };
  EXPECT_THAT(refusal([](auto& n) { n[1].weights.pop_back(); }),
              HasSubstr("node 1: another number"));
  EXPECT_THAT(refusal([](auto& n) { n[1].bias.pop_back(); }), HasSubstr("node 1: another number"));
  EXPECT_THAT(refusal([](auto& n) { n[3].inputs[1] = 3; }), HasSubstr("node 3: reads what is not"));
  EXPECT_THAT(refusal([](auto& n) { n[2].window[0] = 9; }), HasSubstr("node 2: a window larger"));
  EXPECT_THAT(refusal([](auto& n) { n[2].codes.scale = 0; }), HasSubstr("node 2: a scale"));
  EXPECT_THAT(refusal([](auto& n) { n[1].groups = 3; }), HasSubstr("node 1: channels"));
  EXPECT_THAT(refusal([](auto& n) { n.resize(1); }), HasSubstr("no graph"));
}

// Also with a number in place of the open batch.
TEST(QuantizedOnnx, TheCheckerTakesAllThatIsWritten) {
  for (const char* name :
       {"lenet", "har_cnn", "mobilenet_v2", "mobilenet_v3_small", "transformer_tiny"}) {
    const ModelSpec model = MakeModel(name).value();
    const ModelState state = InitialState(model, 3).value();
    for (const int64_t batch : {0, 4}) {
      const absl::StatusOr<std::string> bytes = ModelToOnnx(model, state, batch);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(Complaint(*bytes), "") << name;
      onnx::ModelProto written;
      ASSERT_TRUE(written.ParseFromString(*bytes));
      const auto& first = written.graph().input(0).type().tensor_type().shape().dim(0);
      EXPECT_EQ(first.dim_value(), batch);
      EXPECT_EQ(first.dim_param(), batch == 0 ? "batch" : "");
    }
  }
}

}  // namespace
}  // namespace runnel::quantized_onnx_test
