#include "partition/import/model_json.h"

#include <random>
#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"

namespace runnel::model_json_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// How weights begin is no fact of an operator that has none.
ModelSpec Canonical(ModelSpec model) {
  for (LayerSpec& layer : model.layers) {
    for (OpSpec& op : layer.ops) {
      if (op.kind != OpKind::kConv && op.kind != OpKind::kLinear) op.init = OpSpec().init;
    }
  }
  return model;
}

TEST(ModelJson, EveryModelOfTheZooComesBackAsItWas) {
  for (const ModelRow& row : BuiltinModels()) {
    const ModelSpec model = Canonical(row.make());
    const absl::StatusOr<ModelSpec> read = ModelFromJson(ModelToJson(model));
    ASSERT_TRUE(read.ok()) << row.name << ": " << read.status();
    EXPECT_EQ(*read, model) << row.name;
  }
}

constexpr char kSmall[] = R"({"format": "runnel-model", "version": 1, "name": "mine",
  "input": [3, 8, 8], "classes": 4, "layers": [
    {"name": "front", "ops": [{"op": "conv", "out": 6, "kernel": 3, "padding": 1},
                              {"op": "batch_norm"}, {"op": "relu"}]},
    {"name": "block", "ops": [{"op": "conv", "out": 6, "kernel": [3, 1], "padding": [1, 0]},
                              {"op": "add", "from": [1, 0]}]},
    {"name": "end", "ops": [{"op": "global_avg_pool"}, {"op": "linear", "out": 4, "bias": true}]}]})";

TEST(ModelJson, WhatIsLeftOutIsTheUsual) {
  const absl::StatusOr<ModelSpec> model = ModelFromJson(kSmall);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layers[0].ops[2].inputs, std::vector<int32_t>{2});
  EXPECT_EQ(model->layers[1].ops[1].inputs, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(model->layers[0].ops[0].kernel, (std::array<int64_t, 2>{3, 3}));
  EXPECT_EQ(model->layers[1].ops[0].kernel, (std::array<int64_t, 2>{3, 1}));
  EXPECT_EQ(model->layers[0].ops[0].stride, (std::array<int64_t, 2>{1, 1}));
}

TEST(ModelJson, SaysWhatIsWrong) {
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } rows[] = {
      {"\"version\": 1", "\"version\": 2", "is runnel-model 2, this program reads runnel-model 1"},
      {"\"relu\"", "\"swish\"", "layer 0: op 2: operator 'swish' is not known; there are conv, "},
      {"\"conv\", \"out\": 6, \"kernel\": 3", "\"conv\", \"kernel\": 3",
       "layer 0: op 0: 'out' is missing"},
      {"\"block\"", "\"front\"", "layer 1: its name 'front' is that of an earlier layer"},
      {"\"block\"", "\"\"", "layer 1: has an empty name"},
      {"\"kernel\": 3,", "\"kernels\": 3,", "layer 0: op 0: 'kernels' is not known"},
      {"{\"op\": \"relu\"}", "{\"op\": \"relu\", \"rate\": 1}", "op 2: 'rate' is not known"},
      {"\"from\": [1, 0]", "\"from\": [1, 2]", "layer 1: op 1: 'from' 2"},
      {"\"from\": [1, 0]", "\"from\": [1]", "layer block, op 1 (add)"},
      {"\"kernel\": [3, 1]", "\"kernel\": [3, 1, 1]", "'kernel' must be a number or two"},
      {"\"out\": 4", "\"out\": 5", "classes"},
      {"[3, 8, 8]", "[3, 8, 0]", "0"},
      {"\"name\": \"mine\",", "", "'name' is missing"},
      {"\"bias\": true", "\"bias\": 1", "'bias': needs true or false"},
      {"\"bias\": true", "\"init\": \"ones\"", "'init' ones: there are uniform_fan_in"},
  };
  for (const auto& row : rows) {
    const std::string text = absl::StrReplaceAll(kSmall, {{row.from, row.to}});
    ASSERT_NE(text, kSmall) << row.from;
    const absl::Status status = ModelFromJson(text).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
  }
}

TEST(ModelJson, WindowsAndChannels) {
  const std::string text = R"({"format": "runnel-model", "version": 1, "name": "m",
    "input": [3, 9, 8], "classes": 4, "layers": [{"name": "a", "ops": [
      {"op": "conv", "out": 6, "kernel": 3, "padding": 1, "padding_end": [0, 3], "dilation": 2},
      {"op": "leaky_relu", "rate": 0.25},
      {"op": "channel_slice", "begin": 2, "out": 4},
      {"op": "channel_shuffle", "groups": 2},
      {"op": "avg_pool", "kernel": 3, "padding": [2, 0], "counts_padding": true},
      {"op": "global_avg_pool"}]}]})";
  const absl::StatusOr<ModelSpec> model = ModelFromJson(text);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<OpSpec>& ops = model->layers[0].ops;
  EXPECT_EQ(ops[0].end_padding(1), 3);
  EXPECT_EQ(ops[0].extent(0), 5);
  EXPECT_EQ(ops[1].rate, 0.25);
  EXPECT_EQ(ops[2].begin, 2);
  EXPECT_EQ(ops[3].groups, 2);
  EXPECT_TRUE(ops[4].counts_padding);
  EXPECT_EQ(InferShapes(*model, 1)->at(0).op_outputs[4], Shape({1, 4, 8, 6}));
  EXPECT_EQ(ModelFromJson(ModelToJson(*model)).value(), *model);
}

TEST(ModelJson, FormsOfTokenOperators) {
  ModelSpec model = MakeModel("transformer_tiny").value();
  for (LayerSpec& layer : model.layers) {
    for (OpSpec& op : layer.ops) {
      op.exact = op.kind == OpKind::kGelu;
      op.bidirectional = op.kind == OpKind::kAttention;
    }
  }
  const absl::StatusOr<ModelSpec> read = ModelFromJson(ModelToJson(model));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, model);
}

TEST(ModelJson, DamageNeverCrashes) {
  constexpr uint32_t kSeed = 99;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string good = kSmall;
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    text[random() % text.size()] = "0123456789.-e \"[]{},:x"[random() % 22];
    const absl::StatusOr<ModelSpec> model = ModelFromJson(text);
    if (!model.ok()) continue;
    ++accepted;
    EXPECT_EQ(ModelFromJson(ModelToJson(*model)).value(), *model);
  }
  EXPECT_GT(accepted, 10);
}

// The same layers for other samples; the last layer follows the classes.
TEST(ModelFor, FollowsTheData) {
  const absl::StatusOr<ModelSpec> model =
      ModelFor(MakeModel("mobilenet_v2").value(), {3, 64, 48}, 7);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->input, Shape({3, 64, 48}));
  EXPECT_EQ(model->layers.back().ops.back().out_channels, 7);
  const ModelSpec lenet = MakeModel("lenet").value();
  EXPECT_EQ(ModelFor(lenet, lenet.input, lenet.classes).value(), lenet);
  EXPECT_THAT(std::string(ModelFor(lenet, {5}, 2).status().message()),
              AllOf(HasSubstr("model lenet for samples of 5"), HasSubstr("layer conv1"),
                    HasSubstr("; models that take them: mlp")));
  EXPECT_THAT(std::string(MakeModel("net.json").status().message()),
              HasSubstr("'net.json' is not known; a file is json:net.json; there are lenet"));
  for (const ModelRow& row : BuiltinModels())
    EXPECT_TRUE(ModelFor(row.make(), row.make().input, 3).ok()) << row.name;
}

}  // namespace
}  // namespace runnel::model_json_test
