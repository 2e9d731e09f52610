// Windows and channels of networks that others wrote; ours written and read again.

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/export/onnx_model.h"
#include "tests/partition/onnx_graph_writer.h"

namespace runnel::onnx_windows_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Graph = OnnxGraphWriter;

// Two of torch.chunk's three parts of 6 channels: 2 * ((6 + 2) / 3) of integers, from a Shape.
TEST(Onnx, QuotientsOfIntegersAreCutOff) {
  Graph g;
  g.Weight("stem.weight", {6, 2, 1, 1});
  g.Node("Conv", {"x", "stem.weight"}, "stem");
  g.Node("Shape", {"stem"}, "shape");
  g.Numbers("one", {1});
  g.Numbers("two", {2});
  g.Numbers("three", {3});
  g.Numbers("none", {0});
  g.Node("Gather", {"shape", "one"}, "channels");
  g.Node("Add", {"channels", "two"}, "more");
  g.Node("Div", {"more", "three"}, "third");
  g.Node("Mul", {"third", "two"}, "end");
  g.Node("Slice", {"stem", "none", "end", "one"}, "a");
  g.Node("GlobalAveragePool", {"a"}, "mean");
  g.Weight("fc.weight", {4, 5});
  g.Node("Flatten", {"mean"}, "flat");
  g.Node("MatMul", {"flat", "fc.weight"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model.layers[0].ops[1].out_channels, 4);
}

// Rounded up, the last window reaches beyond the input.
TEST(Onnx, PoolsThatRoundUp) {
  for (const int kernel : {2, 3}) {
    Graph g;
    onnx::NodeProto& pool = g.Node("MaxPool", {"x"}, "pooled");
    g.Ints(pool, "kernel_shape", {kernel, kernel});
    g.Ints(pool, "strides", {2, 2});
    onnx::AttributeProto& mode = *pool.add_attribute();
    mode.set_name("ceil_mode");
    mode.set_i(1);
    g.Weight("fc.weight", {8, 5});
    g.Node("Flatten", {"pooled"}, "flat");
    g.Node("MatMul", {"flat", "fc.weight"}, "y");
    g.Output("y");
    const auto read = g.Read();
    ASSERT_TRUE(read.ok()) << read.status();
    const OpSpec& op = read->model.layers[0].ops[0];
    EXPECT_THAT(op.padding, ElementsAre(0, 0));
    EXPECT_THAT(op.padding_end, ElementsAre(kernel == 2 ? -1 : 1, kernel == 2 ? -1 : 1));
  }
}

std::vector<OpSpec> OpsOf(const ModelSpec& model) {
  std::vector<OpSpec> ops;
  for (const LayerSpec& layer : model.layers) {
    for (OpSpec op : layer.ops) {
      op.init = InitKind::kUniformFanIn;
      op.inputs.clear();  // which layers there are may differ
      ops.push_back(op);
    }
  }
  return ops;
}

// Read, written and read again.
void ExpectComesBack(const OnnxModel& read) {
  const auto written = ModelToOnnx(read.model, read.state);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto again = ModelFromOnnx(*written);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(OpsOf(again->model), OpsOf(read.model));
  EXPECT_EQ(Tensors(again->state), Tensors(read.state));
}

void SetText(onnx::NodeProto& node, const std::string& name, const std::string& value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_s(value);
}
void SetNumber(onnx::NodeProto& node, const std::string& name, int64_t value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_i(value);
}

// Sides that differ, taps that lie apart, padding by name and by a node in front, means of both
// kinds; the input is 4 x 4.
TEST(Onnx, WindowsOfEveryKind) {
  Graph g;
  g.Weight("a.weight", {3, 2, 2, 2});
  onnx::NodeProto& uneven = g.Node("Conv", {"x", "a.weight"}, "a");  // 5 x 4, no kernel_shape
  g.Ints(uneven, "pads", {0, 1, 2, 0});
  g.Weight("b.weight", {3, 3, 3, 2});
  onnx::NodeProto& dilated = g.Node("Conv", {"a", "b.weight"}, "b");  // 5 x 4
  g.Ints(dilated, "pads", {2, 1, 2, 2});
  g.Ints(dilated, "dilations", {2, 3});
  g.Weight("c.weight", {3, 3, 3, 3});
  onnx::NodeProto& same = g.Node("Conv", {"b", "c.weight"}, "c");  // 3 x 2
  g.Ints(same, "strides", {2, 2});
  SetText(same, "auto_pad", "SAME_UPPER");
  g.Numbers("amounts", {0, 0, 1, 0, 0, 0, 1, 1});
  g.Node("Pad", {"c", "amounts"}, "wide");                               // 5 x 3
  g.Ints(g.Node("AveragePool", {"wide"}, "d"), "kernel_shape", {2, 2});  // 4 x 2
  onnx::NodeProto& mean = g.Node("AveragePool", {"d"}, "e");
  g.Ints(mean, "kernel_shape", {3, 1});
  g.Ints(mean, "pads", {1, 0, 0, 0});
  g.Node("GlobalAveragePool", {"e"}, "f");
  g.Weight("fc.weight", {3, 5});
  g.Node("Flatten", {"f"}, "h");
  g.Node("MatMul", {"h", "fc.weight"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  const std::vector<OpSpec> ops = OpsOf(read->model);
  ASSERT_EQ(ops.size(), 7u);
  EXPECT_THAT(ops[0].padding, ElementsAre(0, 1));
  EXPECT_THAT(ops[0].padding_end, ElementsAre(2, 0));
  EXPECT_THAT(ops[0].kernel, ElementsAre(2, 2));
  EXPECT_THAT(ops[1].dilation, ElementsAre(2, 3));
  EXPECT_THAT(ops[2].padding, ElementsAre(1, 0));
  EXPECT_THAT(ops[2].padding_end, ElementsAre(1, 1));
  EXPECT_THAT(ops[3].padding_end, ElementsAre(1, 1));
  EXPECT_TRUE(ops[3].counts_padding);
  EXPECT_THAT(ops[4].padding_end, ElementsAre(0, 0));
  EXPECT_FALSE(ops[4].counts_padding);
  ExpectComesBack(*read);
  SetNumber(mean, "ceil_mode", 1);
  SetNumber(mean, "count_include_pad", 1);
  EXPECT_TRUE(g.Read().ok()) << "nothing is rounded";
  g.Node("Relu", {"wide"}, "z");
  EXPECT_THAT(g.Refusal(), HasSubstr("node n_z (Relu): of padded values"));
}

// The amounts of torch.nn.ZeroPad2d((0, 1, 2, 3)): pairs from the last axis on, filled up with zeros,
// turned and put into ONNX's order.
TEST(Onnx, PaddingThatTheGraphComputes) {
  Graph g;
  g.Numbers("pairs", {0, 1, 2, 3});
  g.Node("Shape", {"pairs"}, "length");
  g.Numbers("eight", {8});
  g.Node("Sub", {"eight", "length"}, "missing");
  onnx::TensorProto& zero =
      *g.Node("ConstantOfShape", {"missing"}, "zeros").add_attribute()->mutable_t();
  g.graph().mutable_node(2)->mutable_attribute(0)->set_name("value");
  zero.set_data_type(onnx::TensorProto::INT64);
  zero.add_dims(1);
  zero.add_int64_data(0);
  SetNumber(g.Node("Concat", {"pairs", "zeros"}, "all"), "axis", 0);
  g.Numbers("by_two", {-1, 2});
  g.Node("Reshape", {"all", "by_two"}, "rows");
  g.Numbers("minus1", {-1});
  g.Numbers("least", {std::numeric_limits<int64_t>::min()});
  g.Numbers("axis0", {0});
  g.Node("Slice", {"rows", "minus1", "least", "axis0", "minus1"}, "reversed");
  g.Ints(g.Node("Transpose", {"reversed"}, "turned"), "perm", {1, 0});
  g.Node("Reshape", {"turned", "minus1"}, "list");
  SetNumber(g.Node("Cast", {"list"}, "amounts"), "to", onnx::TensorProto::INT64);
  g.Node("Pad", {"x", "amounts"}, "padded");
  g.Weight("stem.weight", {5, 2, 3, 3});
  g.Node("Conv", {"padded", "stem.weight"}, "stem");
  g.Node("GlobalAveragePool", {"stem"}, "mean");
  g.Node("Flatten", {"mean"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->model.layers[0].ops[0].padding, ElementsAre(2, 0));
  EXPECT_THAT(read->model.layers[0].ops[0].padding_end, ElementsAre(3, 1));
}

// Parts of channels by Split and Slice, of which one is not read; a shuffle as torchvision's
// shufflenet has it.
TEST(Onnx, ChannelsThatArePartedAndShuffled) {
  Graph g;
  g.Weight("stem.weight", {7, 2, 1, 1});
  g.Node("Conv", {"x", "stem.weight"}, "stem");
  g.Numbers("sizes", {1, 4, 2});
  onnx::NodeProto& split = g.Node("Split", {"stem", "sizes"}, "a");
  split.add_output("b");
  split.add_output("c");
  SetNumber(split, "axis", 1);
  g.Numbers("minus3", {-3});
  g.Numbers("end", {int64_t{1} << 40});
  g.Numbers("axis1", {1});
  g.Node("Slice", {"b", "minus3", "end", "axis1"}, "d");
  g.Weight("d.weight", {3, 3, 1, 1});
  g.Node("Conv", {"d", "d.weight"}, "e");
  SetNumber(g.Node("Concat", {"e", "a", "c", "c"}, "all"), "axis", 1);
  g.Node("Slice", {"all", "zero", "end", "axis1"}, "same");
  g.Numbers("zero", {0});
  g.Numbers("apart", {-1, 2, 4, 4, 4});
  g.Node("Reshape", {"same", "apart"}, "groups");
  onnx::NodeProto& turned = g.Node("Transpose", {"groups"}, "turned");
  g.Ints(turned, "perm", {0, 2, 1, 3, 4});
  g.Numbers("together", {1, -1, 4, 4});
  g.Node("Reshape", {"turned", "together"}, "shuffled");
  g.Node("GlobalAveragePool", {"shuffled"}, "mean");
  g.Weight("fc.weight", {8, 5});
  g.Node("Flatten", {"mean"}, "flat");
  g.Node("MatMul", {"flat", "fc.weight"}, "y");
  g.Output("y");
  const absl::StatusOr<OnnxModel> read = g.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<std::string> kinds;
  const std::vector<OpSpec> ops = OpsOf(read->model);
  for (const OpSpec& op : ops) kinds.emplace_back(Name(op.kind));
  ASSERT_THAT(kinds, ElementsAre("conv", "channel_slice", "channel_slice", "channel_slice",
                                 "channel_slice", "conv", "concat", "concat", "concat",
                                 "channel_shuffle", "global_avg_pool", "linear"));
  EXPECT_EQ(ops[2].begin, 1);
  EXPECT_EQ(ops[2].out_channels, 4);
  EXPECT_EQ(ops[4].begin, 1);
  EXPECT_EQ(ops[4].out_channels, 3);
  EXPECT_EQ(ops[9].groups, 2);
  ExpectComesBack(*read);
  turned.mutable_attribute(0)->set_ints(1, 3);
  EXPECT_THAT(g.Refusal(), HasSubstr("node n_turned (Transpose): attribute perm"));
  turned.mutable_attribute(0)->set_ints(1, 2);
  g.Node("Relu", {"groups"}, "z");
  EXPECT_THAT(g.Refusal(), HasSubstr("node n_z (Relu): of channels in groups"));
}

}  // namespace
}  // namespace runnel::onnx_windows_test
