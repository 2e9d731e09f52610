#include "proto/base/model/model_spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::model_spec_test {
namespace {

using ::testing::HasSubstr;

OpSpec Conv(int64_t out_channels, int64_t kernel, int64_t stride, int64_t padding, int64_t groups) {
  OpSpec op;
  op.kind = OpKind::kConv;
  op.inputs = {0};
  op.out_channels = out_channels;
  op.kernel = {kernel, kernel};
  op.stride = {stride, stride};
  op.padding = {padding, padding};
  op.groups = groups;
  return op;
}

TEST(InferLayer, Conv2dAndDepthwise) {
  LayerSpec layer{"c", {Conv(32, 3, 2, 1, 1)}};
  const LayerInfo info = InferLayer(layer, {8, 3, 32, 32}).value();
  EXPECT_EQ(info.output, Shape({8, 32, 16, 16}));
  EXPECT_EQ(info.parameters, 32 * 3 * 9);
  EXPECT_EQ(info.macs, 8 * 32 * 16 * 16 * 27);

  LayerSpec depthwise{"d", {Conv(32, 3, 1, 1, 32)}};
  const LayerInfo info2 = InferLayer(depthwise, {8, 32, 16, 16}).value();
  EXPECT_EQ(info2.state[0].shape, Shape({32, 1, 3, 3}));
  EXPECT_EQ(info2.macs, 8 * 32 * 256 * 9);
}

TEST(InferLayer, Conv1dUsesTheFirstKernelAxisOnly) {
  OpSpec conv = Conv(64, 3, 1, 0, 1);
  conv.kernel = {3, 99};
  conv.bias = true;
  const LayerInfo info = InferLayer({"c", {conv}}, {64, 9, 128}).value();
  EXPECT_EQ(info.output, Shape({64, 64, 126}));
  EXPECT_EQ(info.parameters, 1792);
}

TEST(InferLayer, MaxPoolHasPaddingBelowItsKernel) {
  OpSpec pool = Conv(0, 3, 2, 1, 1);
  pool.kind = OpKind::kMaxPool;
  EXPECT_EQ(InferLayer({"p", {pool}}, {2, 64, 112, 112})->output, Shape({2, 64, 56, 56}));
  EXPECT_EQ(InferLayer({"p", {pool}}, {2, 64, 7})->output, Shape({2, 64, 4}));
  pool.kind = OpKind::kAvgPool;
  EXPECT_EQ(InferLayer({"p", {pool}}, {2, 64, 112, 112})->output, Shape({2, 64, 56, 56}));
  pool.kind = OpKind::kMaxPool;
  pool.padding = {0, 3};
  EXPECT_THAT(std::string(InferLayer({"p", {pool}}, {2, 64, 9, 9}).status().message()),
              HasSubstr("layer p, op 0 (max_pool): padding 3 must be below the kernel of 3"));
  pool.padding = {-1, 0};
  EXPECT_FALSE(InferLayer({"p", {pool}}, {2, 64, 9, 9}).ok());
}

TEST(InferLayer, WindowsBySideAndDilated) {
  OpSpec conv = Conv(8, 3, 2, 1, 1);
  conv.padding_end = {0, 4};
  conv.dilation = {2, 3};
  EXPECT_EQ(InferLayer({"a", {conv}}, {2, 3, 9, 10})->output, Shape({2, 8, 3, 5}));
  const auto error = [](OpSpec op, Shape in) {
    return std::string(InferLayer({"a", {op}}, in).status().message());
  };
  EXPECT_THAT(error(conv, {2, 3, 3, 10}), HasSubstr("kernel 5 is larger than its input of 4"));
  conv.dilation = {0, 1};
  EXPECT_THAT(error(conv, {2, 3, 9, 10}), HasSubstr("dilation must be at least 1"));
  OpSpec pool = {.kind = OpKind::kAvgPool, .inputs = {0}, .kernel = {3, 3}};
  pool.padding_end = {2, 0};
  EXPECT_EQ(InferLayer({"a", {pool}}, {1, 4, 5, 5})->output, Shape({1, 4, 5, 3}));
  pool.padding_end = {3, 0};
  EXPECT_THAT(error(pool, {1, 4, 5, 5}), HasSubstr("padding 3 must be below the kernel of 3"));
  pool.padding_end = {-1, -1};
  pool.dilation = {2, 1};
  EXPECT_THAT(error(pool, {1, 4, 5, 5}), HasSubstr("pools have no dilation"));
}

TEST(InferLayer, PartsOfChannels) {
  OpSpec slice = {.kind = OpKind::kSlice, .inputs = {0}, .out_channels = 3};
  slice.begin = 2;
  EXPECT_EQ(InferLayer({"a", {slice}}, {2, 5, 4, 4})->output, Shape({2, 3, 4, 4}));
  EXPECT_EQ(*InferOutput(slice, {Shape({2, 5, 4, 4})}), Shape({2, 3, 4, 4}));
  slice.begin = 3;
  EXPECT_THAT(std::string(InferLayer({"a", {slice}}, {2, 5, 4, 4}).status().message()),
              HasSubstr("takes 3 channels from 3 on of 2x5x4x4"));
  OpSpec shuffle = {.kind = OpKind::kShuffle, .inputs = {0}, .groups = 3};
  EXPECT_EQ(InferLayer({"a", {shuffle}}, {2, 6, 4})->output, Shape({2, 6, 4}));
  EXPECT_THAT(std::string(InferLayer({"a", {shuffle}}, {2, 5, 4}).status().message()),
              HasSubstr("mixes 3 groups of 2x5x4"));
}

TEST(InferLayer, AnLstmCellTakesSumsAndAState) {
  OpSpec state = {.kind = OpKind::kCarriedState, .inputs = {0}};
  OpSpec cell = {.kind = OpKind::kLstmCell, .inputs = {0, 1}};
  EXPECT_EQ(InferLayer({"a", {state, cell}}, {5, 64})->output, Shape({5, 32}));
  cell.inputs = {0};
  EXPECT_EQ(InferLayer({"a", {cell}}, {5, 64})->output, Shape({5, 32}));
  EXPECT_THAT(std::string(InferLayer({"a", {cell}}, {5, 48}).status().message()),
              HasSubstr("needs sums 5x64, got 5x48"));
  cell.inputs = {0, 0};
  EXPECT_THAT(std::string(InferLayer({"a", {cell}}, {5, 64}).status().message()),
              HasSubstr("needs a state 5x32, got 5x64"));
  cell.inputs = {0, 1, 1};
  EXPECT_THAT(std::string(InferLayer({"a", {state, cell}}, {5, 64}).status().message()),
              HasSubstr("has 3 inputs, needs 2"));
}

// A state stands beside the tensors between layers: it is none of them, and its readers need one.
TEST(InferShapes, AStateIsNoTensorBetweenLayers) {
  const auto linear = [](int32_t input, int64_t features) {
    return OpSpec{.kind = OpKind::kLinear, .inputs = {input}, .out_channels = features};
  };
  const auto error = [](std::vector<LayerSpec> layers) {
    const ModelSpec model{"m", {4}, 3, std::move(layers)};
    return std::string(InferShapes(model, 2).status().message());
  };
  const OpSpec cell = {.kind = OpKind::kLstmCell, .inputs = {1}};
  const OpSpec carried = {.kind = OpKind::kCarriedState, .inputs = {0}};
  const OpSpec add = {.kind = OpKind::kAdd, .inputs = {2, 3}};
  const LayerSpec first = {"first", {linear(0, 4 * kLstmUnits), cell, linear(2, 5)}};
  const LayerSpec second = {"second", {carried, linear(1, 3), linear(0, 3), add}};
  EXPECT_EQ(error({first, second}), "");
  EXPECT_EQ(error({first, {"lone", {carried, linear(1, 3)}}}),
            "model m, layer lone: no operator but carried_state reads the layer's input");
  EXPECT_EQ(error({{"open", {linear(0, 4 * kLstmUnits), cell}}, second}),
            "model m, layer open: ends with lstm_cell; put an operator behind it that reads the "
            "state");
}

TEST(CarriesState, IsAnOperatorInFrontOfItsLayersCell) {
  const OpSpec cell = {.kind = OpKind::kLstmCell, .inputs = {0}};
  const OpSpec carried = {.kind = OpKind::kCarriedState, .inputs = {0}};
  const OpSpec relu = {.kind = OpKind::kRelu, .inputs = {0}};
  const auto carries = [](std::vector<std::vector<OpSpec>> layers) {
    ModelSpec model{"m", {4}, 3, {}};
    for (std::vector<OpSpec>& ops : layers) model.layers.push_back({"layer", std::move(ops)});
    return CarriesState(model);
  };
  EXPECT_TRUE(carries({{cell, relu}, {relu}, {relu, carried, cell}}));
  EXPECT_TRUE(carries({{cell, carried}, {carried}}));
  EXPECT_FALSE(carries({{cell, carried}, {cell, carried}}));
  EXPECT_FALSE(carries({{carried}, {relu}}));
}

TEST(InferLayer, ErrorsNameLayerAndOp) {
  const auto error = [](OpSpec op, Shape in) {
    return std::string(InferLayer({"stem", {op}}, in).status().message());
  };
  EXPECT_THAT(error(Conv(32, 5, 1, 0, 1), {1, 3, 4, 4}),
              HasSubstr("layer stem, op 0 (conv): kernel 5 is larger"));
  EXPECT_THAT(error(Conv(32, 3, 1, 1, 2), {1, 3, 4, 4}), HasSubstr("do not fit 2 groups"));
  EXPECT_THAT(error(Conv(32, 3, 0, 1, 1), {1, 3, 4, 4}), HasSubstr("stride"));
  EXPECT_THAT(error(Conv(int64_t{1} << 60, 3, 1, 1, 1), {1, 3, 4, 4}), HasSubstr("elements"));
  OpSpec add;
  add.kind = OpKind::kAdd;
  add.inputs = {0, 5};
  EXPECT_THAT(error(add, {1, 3, 4, 4}), HasSubstr("reads value 5"));
  EXPECT_THAT(std::string(InferLayer({"empty", {}}, {1, 3}).status().message()),
              HasSubstr("layer empty"));
}

TEST(InferShapes, RequiresTheClassesAtTheEnd) {
  OpSpec linear;
  linear.kind = OpKind::kLinear;
  linear.inputs = {0};
  linear.out_channels = 6;
  ModelSpec model{"m", {10}, 6, {{"fc", {linear}}}};
  EXPECT_TRUE(InferShapes(model, 4).ok());
  EXPECT_FALSE(InferShapes(model, 0).ok());
  model.classes = 7;
  EXPECT_THAT(std::string(InferShapes(model, 4).status().message()), HasSubstr("ends with 4x6"));
}

OpSpec Linear(int32_t input, int64_t features) {
  return {.kind = OpKind::kLinear, .inputs = {input}, .out_channels = features};
}

OpSpec Embedding(int64_t rows) {
  return {.kind = OpKind::kEmbedding, .inputs = {0}, .out_channels = 5, .rows = rows};
}

TEST(InferShapes, ALinearOperatorTakesRows) {
  const ModelSpec model{"m", {9, 128}, 6, {{"fc", {Linear(0, 6)}}}};
  const auto infos = InferShapes(model, 4);
  ASSERT_TRUE(infos.ok()) << infos.status();
  EXPECT_EQ(infos->back().output, Shape({4, 9, 6}));
  EXPECT_EQ(infos->back().state[0].shape, Shape({6, 128}));
  EXPECT_EQ(infos->back().macs, 4 * 9 * 6 * 128);
  EXPECT_EQ(*LabelsPerSample(model), 9);
  EXPECT_EQ(model.input_type(), DType::kFloat32);
  EXPECT_FALSE(InferLayer({"fc", {Linear(0, 6)}}, {4, 3, 9, 128}).ok());
  const ModelSpec long_one{"m", {kMaxLabelsPerSample + 1, 1}, 6, {{"fc", {Linear(0, 6)}}}};
  EXPECT_THAT(std::string(InferShapes(long_one, 1).status().message()),
              HasSubstr("over the limit of 65536 labels a sample"));
}

TEST(InferShapes, TokensAreLookedUpFirst) {
  ModelSpec model{"m", {7}, 6, {{"table", {Embedding(11)}}, {"fc", {Linear(0, 6)}}}};
  const auto infos = InferShapes(model, 4);
  ASSERT_TRUE(infos.ok()) << infos.status();
  EXPECT_EQ((*infos)[0].output, Shape({4, 7, 5}));
  EXPECT_EQ((*infos)[0].state[0].shape, Shape({11, 5}));
  EXPECT_EQ(model.tokens(), 11);
  EXPECT_EQ(model.input_type(), DType::kInt32);
  EXPECT_EQ(*LabelsPerSample(model), 7);
  const auto error = [&model] { return std::string(InferShapes(model, 4).status().message()); };
  OpSpec second = Embedding(9);
  OpSpec add = {.kind = OpKind::kAdd, .inputs = {1, 2}};
  model.layers[0].ops = {Embedding(11), second, add};
  EXPECT_EQ(error(), "");
  EXPECT_EQ(model.tokens(), 9);
  model.layers[0].ops = {Embedding(0)};
  EXPECT_THAT(error(), HasSubstr("layer table, op 0 (embedding): "));
  model.layers[0].ops = {Embedding(11), Linear(0, 5), add};
  EXPECT_FALSE(InferShapes(model, 4).ok());
  model.layers[0].ops = {Linear(0, 7)};
  model.layers[1].ops = {Embedding(11), Linear(1, 6)};
  EXPECT_THAT(error(), HasSubstr("layer fc, op 0 (embedding): reads no samples"));
  model.layers = {{"both", {Linear(0, 5), Embedding(11), Linear(2, 6)}}};
  EXPECT_THAT(error(), HasSubstr("layer both, op 0 (linear): reads tokens"));
}

TEST(InferShapes, ADecodersBlock) {
  OpSpec embedding = Embedding(11);
  embedding.positions = true;
  embedding.out_channels = 6;
  OpSpec attention = {.kind = OpKind::kAttention, .inputs = {2}, .heads = 3};
  const OpSpec norm = {.kind = OpKind::kLayerNorm, .inputs = {0}};
  ModelSpec model{
      "m",
      {7},
      6,
      {{"table", {embedding}},
       {"block", {norm, Linear(1, 18), attention, {.kind = OpKind::kGelu, .inputs = {3}}}}}};
  const auto infos = InferShapes(model, 4);
  ASSERT_TRUE(infos.ok()) << infos.status();
  EXPECT_EQ((*infos)[0].state[1].name, "0.positions");
  EXPECT_EQ((*infos)[0].state[1].shape, Shape({7, 6}));
  EXPECT_EQ((*infos)[0].parameters, 11 * 6 + 7 * 6);
  EXPECT_EQ((*infos)[1].state[0].shape, Shape({6}));
  EXPECT_EQ((*infos)[1].output, Shape({4, 7, 6}));
  EXPECT_EQ((*infos)[1].macs, 4 * 7 * (6 * 18 + 2 * 7 * 6));
  const auto error = [&](auto change) {
    ModelSpec changed = model;
    change(changed.layers[1].ops);
    return std::string(InferShapes(changed, 4).status().message());
  };
  EXPECT_THAT(error([](auto& ops) { ops[2].heads = 4; }),
              HasSubstr("6 features do not fit 4 heads"));
  EXPECT_THAT(error([](auto& ops) { ops[2].heads = 0; }), HasSubstr("do not fit 0 heads"));
  EXPECT_THAT(error([](auto& ops) { ops[1].out_channels = 17; }),
              HasSubstr("layer block, op 2 (attention): needs (N,T,3F), got 4x7x17"));
  EXPECT_THAT(error([](auto& ops) { ops[0].epsilon = 0; }), HasSubstr("epsilon must be positive"));
}

TEST(OpNames, RoundTrip) {
  for (int kind = 1; kind <= 15; ++kind) {
    EXPECT_EQ(OpKindFromName(Name(static_cast<OpKind>(kind))).value(), static_cast<OpKind>(kind));
  }
  EXPECT_FALSE(OpKindFromName("conv3d").ok());
}

}  // namespace
}  // namespace runnel::model_spec_test
