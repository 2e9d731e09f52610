#include "proto/base/training/dials/precision.h"

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/base/training/precision/precision_cost.h"

namespace runnel::precision_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(absl::string_view text) {
  return std::string(ParsePrecision(text).status().message());
}

TEST(Precision, IsParsed) {
  EXPECT_TRUE(ParsePrecision("recipe")->levels.empty());
  EXPECT_THAT(ParsePrecision("fixed:8/16")->levels, ElementsAre(GridBits{8, 16}));
  const PrecisionSetting pfq = *ParsePrecision("pfq:3,4/6,6@0.1,0.3,100");
  EXPECT_THAT(pfq.levels, ElementsAre(GridBits{3, 6}, GridBits{4, 6}));
  EXPECT_EQ(pfq.rule, "pfq");
  EXPECT_EQ(pfq.rule_arguments, "0.1,0.3,100");
  EXPECT_THAT(ParsePrecision("at:0:3/6,10:8/8")->from_epochs, ElementsAre(0, 10));
}

TEST(Precision, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(ErrorOf("8/8"), HasSubstr("'8/8' is no precision; give recipe, fixed:FW/BW"));
  EXPECT_THAT(ErrorOf("pfq:3,4,6/6,6"), HasSubstr("has 3 FW and 2 BW; give as many of both"));
  EXPECT_THAT(ErrorOf("pfq:3,6,4/6,6,6"), HasSubstr("bits fall from 6 to 4"));
  EXPECT_THAT(ErrorOf("pfq:3,4/6,6@"), HasSubstr("nothing behind its @"));
  EXPECT_THAT(ErrorOf("fixed:3,4/6,6"), HasSubstr("several levels"));
  EXPECT_THAT(ErrorOf("fixed:17/8"), HasSubstr("'17' is no number of bits from 1 to 16"));
  EXPECT_THAT(ErrorOf("fixed:8"), HasSubstr("'8' is not FW/BW"));
  EXPECT_THAT(ErrorOf("cpt:3/8"), HasSubstr("'3/8' is not LEAST,MOST/BW"));
  EXPECT_THAT(ErrorOf("at:1:3/6"), HasSubstr("do not ascend from 0"));
  for (const char* text :
       {"", "fixed", "fixed:", "pfq", "at:0", "at:x:3/6", "cpt:8,3/8", "fixed:/"})
    EXPECT_FALSE(ParsePrecision(text).ok()) << text;
}

TEST(Precision, FitsTheRecipesBits) {
  const auto fits = [](absl::string_view text, absl::string_view recipe) {
    return std::string(CheckPrecisionOf(*ParsePrecision(text), *ParseRecipeName(recipe)).message());
  };
  EXPECT_EQ(fits("fixed:8/16", "sbm:8,8,8"), "");
  EXPECT_EQ(fits("fixed:8/8", "dorefa:4,4,8"), "");
  EXPECT_EQ(fits("recipe", "fp32"), "");
  EXPECT_THAT(fits("fixed:8/16", "dorefa:4,4,8"), HasSubstr("no BW of 16 bits; give 1 to 8"));
  EXPECT_THAT(fits("fixed:9/8", "sbm:8,8,8"), HasSubstr("no FW of 9 bits; give 2 to 8"));
  EXPECT_THAT(fits("fixed:8/8", "fp32"), HasSubstr("recipe fp32 has no grids"));
  EXPECT_THAT(fits("fixed:8/8", "niti"), HasSubstr("recipe niti has fixed bits"));
  EXPECT_THAT(fits("fixed:8/8", "dorefa:32,32,32"), HasSubstr("has no grids"));
  EXPECT_THAT(fits("fixed:8/8", "dorefa:1,2,6"), HasSubstr("weights of 1 bit"));
}

TEST(Precision, NamesTheRecipeOfALevel) {
  const auto name = [](absl::string_view recipe, GridBits level) {
    return RecipeAtLevel(*ParseRecipeName(recipe), level);
  };
  EXPECT_EQ(name("sbm:8,8,8", {3, 16}), "sbm:3,3,16");
  EXPECT_EQ(name("sbm:8,8,8", {}), "sbm:8,8,8");
  EXPECT_EQ(name("dorefa:1,32,8", {4, 6}), "dorefa:1,32,6");
  EXPECT_EQ(name("octo", {4, 6}), "octo");
}

TEST(Precision, CodesHaveTheLargestBitsOfNameAndLevels) {
  const auto bits = [](const char* recipe, const char* precision) {
    return MemoryOf(*ParseRecipeName(recipe), *ParsePrecision(precision)).code_bits;
  };
  EXPECT_EQ(bits("sbm:8,4,6", "recipe"), 4);
  EXPECT_EQ(bits("sbm:4,4,6", "fixed:3/6"), 4);
  EXPECT_EQ(bits("sbm:4,4,6", "pfq:3,4,6/6,6,8"), 6);
  EXPECT_EQ(bits("sbm:4,4,6", "cpt:3,8/8"), 8);
  EXPECT_EQ(bits("sbm_range:8,3,8", "recipe"), 3);
  for (const char* other : {"ui8", "octo", "fp32", "dorefa:2,2,6"})
    EXPECT_EQ(bits(other, "recipe"), 8) << other;
}

TEST(Precision, LevelsFollowChangesAndEpochs) {
  const PrecisionSetting pfq = *ParsePrecision("pfq:3,4,6/6,6,8");
  const std::vector<TrainingChange> changes = {ChangeOfPrecision(10, 1), ChangeOfPrecision(20, 2)};
  EXPECT_EQ(PrecisionAt(pfq, changes, 0, 0, 9), (GridBits{3, 6}));
  EXPECT_EQ(PrecisionAt(pfq, changes, 0, 0, 10), (GridBits{4, 6}));
  EXPECT_EQ(PrecisionAt(pfq, changes, 0, 5, 20), (GridBits{6, 8}));
  EXPECT_EQ(LastPrecision(pfq, changes), (GridBits{6, 8}));
  EXPECT_EQ(LastPrecision(pfq, {}), (GridBits{3, 6}));
  EXPECT_EQ(PrecisionAt(pfq, {ChangeOfPrecision(1, 40)}, 0, 0, 1), (GridBits{6, 8}));
  const PrecisionSetting at = *ParsePrecision("at:0:3/6,2:8/8");
  EXPECT_EQ(PrecisionAt(at, {}, 0, 1, 100), (GridBits{3, 6}));
  EXPECT_EQ(PrecisionAt(at, {}, 0, 2, 101), (GridBits{8, 8}));
  EXPECT_FALSE(CheckPrecisionValue("64").ok());
  EXPECT_FALSE(CheckPrecisionValue("-1").ok());
  EXPECT_TRUE(CheckPrecisionValue("63").ok());
}

// A cycle of 8 steps: 3 + 5 * (1 - cos(pi * t / 8)) / 2, rounded, halves down.
TEST(Precision, CyclesByTheStep) {
  const PrecisionSetting cpt = *ParsePrecision("cpt:3,8/8");
  std::vector<int> bits;
  for (int64_t step = 0; step < 10; ++step)
    bits.push_back(PrecisionAt(cpt, {}, 8 * kPrecisionCycles, 0, step).forward);
  EXPECT_THAT(bits, ElementsAre(3, 3, 4, 5, 5, 6, 7, 8, 3, 3));
  EXPECT_EQ(LastPrecision(cpt, {}), (GridBits{8, 8}));
  EXPECT_EQ(PrecisionAt(cpt, {}, 0, 0, 5), (GridBits{3, 8})) << "a run shorter than its cycles";
}

// One linear layer of 8 x 4, a ReLU, one of 4 x 4, one of 4 x 2.
ModelSpec ThreeLayers() {
  ModelSpec model;
  model.name = "three";
  model.input = {8};
  model.classes = 2;
  for (const int64_t features : {4, 4, 2}) {
    OpSpec linear;
    linear.kind = OpKind::kLinear;
    linear.out_channels = features;
    linear.inputs = {0};
    LayerSpec& layer = model.layers.emplace_back();
    layer.name = absl::StrCat("l", model.layers.size());
    layer.ops = {linear};
  }
  return model;
}

TrainingSettings TenSamples(const std::string& precision) {
  TrainingSettings training;
  training.dataset_samples = 10;
  training.batch_size = 4;
  training.precision = precision;
  return training;
}

// Of one site of a model.
PassMacs MacsAt(ProductPlace place, const std::vector<SiteMacs>& sites) {
  for (const SiteMacs& one : sites)
    if (one.site.place == place) return one.macs;
  return {};
}

TEST(PrecisionCost, CountsAllLayersAndPasses) {
  const ModelSpec model = ThreeLayers();
  const SampleMacs macs = *SampleMacsOf(model);
  const PassMacs first = MacsAt(ProductPlace::kFirst, macs.all);
  EXPECT_EQ(first.forward, 32);
  EXPECT_EQ(first.input_gradient, 0) << "nobody wants the samples' gradient";
  EXPECT_EQ(first.weight_gradient, 32);
  EXPECT_EQ(MacsAt(ProductPlace::kInner, macs.all).sum(), 3 * 16);
  EXPECT_EQ(MacsAt(ProductPlace::kLast, macs.all).sum(), 3 * 8);
  EXPECT_EQ(SumOf(macs.all), 2 * 32 + 3 * 16 + 3 * 8);
  const auto effective = [&](absl::string_view recipe) {
    return EffectiveMacs(macs.all, *ParseRecipeName(recipe), {}).sum();
  };
  EXPECT_EQ(effective("sbm:8,8,8"), (2 * 32 + 3 * 16 + 3 * 8) / 16.0);
  EXPECT_EQ(effective("dorefa:8,8,8"), 2 * 32 + 3 * 16 / 16.0 + 3 * 8) << "ends are FP32";
  EXPECT_EQ(effective("fp32"), SumOf(macs.all));
}

// Of a product whose three passes are all done.
double ShareOf(absl::string_view recipe, const GridBits& level) {
  const std::vector<SiteMacs> macs = {{{}, {1, 1, 1}}};
  return EffectiveMacs(macs, *ParseRecipeName(recipe), level).sum() / 3;
}

// Shares of FP32 as FracTrain counts them.
TEST(PrecisionCost, SharesAreThePapers) {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/fractrain.json");
  const nlohmann::json golden = nlohmann::json::parse(file)["cp_percent"];
  EXPECT_NEAR(100 * ShareOf("sbm:8,8,8", {}), golden["static"]["8/8"], 1e-12);
  EXPECT_NEAR(100 * ShareOf("sbm:8,8,8", {8, 16}), golden["static"]["8/16"], 1e-12);
  for (const char* data : {"cifar", "imagenet"}) {
    const nlohmann::json& options = golden[data];
    for (size_t i = 0; i < options["cp"].size(); ++i) {
      const std::string recipe =
          absl::StrCat("sbm:", options["W"].get<int>(), ",", options["A"][i].get<int>(), ",",
                       options["G"][i].get<int>());
      EXPECT_NEAR(100 * ShareOf(recipe, {}), options["cp"][i], 1e-12) << recipe;
    }
  }
  // Options of --gates, whose weights have the bits of their activations.
  EXPECT_NEAR(ShareOf("sbm:8,8,8", {3, 6}), 0.0146484, 1e-7);
  EXPECT_NEAR(ShareOf("sbm:8,8,8", {4, 6}), 0.0208333, 1e-7);
  EXPECT_NEAR(ShareOf("sbm:8,8,8", {6, 8}), 0.0429688, 1e-7);
}

// A depthwise convolution between two others, of 2 x 6, 2 x 3 and 4 x 2 multiply-adds.
TEST(PrecisionCost, DepthwiseConvolutionsStayOnTheirGrids) {
  ModelSpec model{"depthwise", {2, 3}, 2, {}};
  const auto conv = [](int64_t groups) {
    return OpSpec{.kind = OpKind::kConv, .inputs = {0}, .out_channels = 2, .groups = groups};
  };
  model.layers = {{"a", {conv(1)}},
                  {"b", {conv(2)}},
                  {"c",
                   {{.kind = OpKind::kGlobalAvgPool, .inputs = {0}},
                    {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 2}}}};
  const RecipeName sbm = *ParseRecipeName("sbm:8,8,8");
  const SampleMacs macs = *SampleMacsOf(model);
  EXPECT_EQ(MacsAt(ProductPlace::kDepthwise, macs.all).sum(), 3 * 6);
  const double fixed = 6 / 16.0 + 6 / 8.0 + 6 / 8.0;
  EXPECT_NEAR(EffectiveMacs(macs.all, sbm, {}).sum(), fixed + (2 * 12 + 3 * 4) / 16.0, 1e-12);
  EXPECT_NEAR(EffectiveMacs(macs.all, sbm, {4, 4}).forward, 6 / 16.0 + 16 / 64.0, 1e-12);
}

// Steps of 4, 4 and 2 samples an epoch; the level turns at the third step.
TEST(PrecisionCost, OfARunIsWeighedBySamples) {
  const RecipeName sbm = *ParseRecipeName("sbm:8,8,8");
  const auto cost = CostOfPrecision(ThreeLayers(), sbm, TenSamples("pfq:4,8/8,8"),
                                    {ChangeOfPrecision(2, 1)}, 3, {0, 1, 3});
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_EQ(cost->macs_done, 10 * (56 + 24 + 56));
  const double four = 56 / 64.0 + 24 / 32.0 + 56 / 32.0, eight = (56 + 24 + 56) / 16.0;
  EXPECT_NEAR(cost->effective.sum(), 8 * four + 2 * eight, 1e-9);
  EXPECT_NEAR(cost->share_of_8_8(), (8 * four + 2 * eight) / (10 * eight), 1e-9);
  EXPECT_THAT(cost->effective_at,
              ElementsAre(0, DoubleNear(4 * four, 1e-9), DoubleNear(8 * four + 2 * eight, 1e-9)));
  EXPECT_EQ(cost->turns, 1);
  ASSERT_EQ(cost->levels.size(), 2u);
  EXPECT_EQ(cost->levels[0].steps, 2);
  EXPECT_EQ(cost->levels[1].steps, 1);
  EXPECT_FALSE(
      CostOfPrecision(ThreeLayers(), *ParseRecipeName("fp32"), TenSamples("recipe"), {}, 3).ok());
}

// A convolution behind a gate between two that are not: 36, 36 and 20 multiply-adds a sample.
TEST(PrecisionCost, OfGatesIsWhatTheirSamplesTake) {
  ModelSpec model{"gated", {2, 3}, 2, {}};
  const auto conv = [](int32_t input) {
    return OpSpec{.kind = OpKind::kConv, .inputs = {input}, .out_channels = 2};
  };
  OpSpec gate{.kind = OpKind::kGate, .inputs = {0}, .rate = 1};
  gate.options = {0, 6, 4, 6, 8, 8};
  gate.held = true;
  model.layers = {{"a", {conv(0)}},
                  {"b",
                   {gate,
                    {.kind = OpKind::kPack, .inputs = {0, 1}},
                    conv(2),
                    {.kind = OpKind::kUnpack, .inputs = {3, 1}},
                    {.kind = OpKind::kAdd, .inputs = {4, 0}}}},
                  {"c",
                   {{.kind = OpKind::kFlatten, .inputs = {0}},
                    {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 2}}}};
  constexpr double kGated = 3 * 12, kOthers = 2 * 12 + 3 * 12;
  const RecipeName sbm = *ParseRecipeName("sbm:8,8,8");
  const auto cost = [&] { return *CostOfPrecision(model, sbm, TenSamples("recipe"), {}, 3); };
  EXPECT_EQ(cost().macs_done, 10 * kOthers) << "all skip";
  EXPECT_EQ(cost().macs_in_full, 10 * (kOthers + kGated));
  EXPECT_NEAR(cost().effective.sum(), 10 * kOthers / 16, 1e-9);
  model.layers[1].ops[0].rate = 0;
  EXPECT_EQ(cost().macs_done, 10 * (kOthers + kGated));
  const double cheap = kGated * (1 / 64.0 + 3 / 128.0 + 3 / 128.0) / 3, dear = kGated / 16;
  const double of_gates = cost().effective.sum() - 10 * kOthers / 16;
  const double share = (10 * dear - of_gates) / (10 * (dear - cheap));
  EXPECT_NEAR(share * 10, std::round(share * 10), 1e-6) << "of ten samples, drawn for both options";
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1);
  const auto fp32 = CostOfPrecision(model, *ParseRecipeName("fp32"), TenSamples("recipe"), {}, 3);
  ASSERT_TRUE(fp32.ok()) << "gates need no grids";

  // Logits of a gate that learns: 3 outputs of 2 pooled inputs, in FP32; its choices are not known.
  LayerSpec& block = model.layers[1];
  block.ops[0].held = false;
  block.ops[0].inputs = {2};
  block.ops[1].inputs = {0, 3};
  block.ops[2].inputs = {4};
  block.ops[3].inputs = {5, 3};
  block.ops[4].inputs = {6, 0};
  const OpSpec pool{.kind = OpKind::kGlobalAvgPool, .inputs = {0}};
  const OpSpec logits{.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 3};
  block.ops.insert(block.ops.begin(), {pool, logits});
  EXPECT_TRUE(cost().gates_learn);
  EXPECT_EQ(cost().macs_in_full, 10 * (kOthers + kGated + 3 * 6));
  EXPECT_NEAR(cost().effective.sum(), 10 * ((kOthers + kGated) / 16 + 3 * 6), 1e-9);
}

TEST(Gates, LayersThatMixSamplesAreRefused) {
  const auto error = [](std::vector<OpSpec> ops) {
    return std::string(InferLayer({"g", std::move(ops)}, {4, 2, 3}).status().message());
  };
  OpSpec gate{.kind = OpKind::kGate, .inputs = {0}};
  gate.options = {0, 8, 32, 32};
  gate.held = true;
  const OpSpec pack{.kind = OpKind::kPack, .inputs = {0, 1}};
  EXPECT_THAT(error({gate, pack}), HasSubstr("leaves the layer with samples by choice"));
  EXPECT_THAT(error({gate, pack, {.kind = OpKind::kAdd, .inputs = {2, 0}}}),
              HasSubstr("cannot read packed samples"));
  EXPECT_THAT(error({gate, {.kind = OpKind::kRelu, .inputs = {1}}}),
              HasSubstr("cannot read a choice"));
  EXPECT_THAT(error({gate, {.kind = OpKind::kUnpack, .inputs = {0, 1}}}),
              HasSubstr("unpacks what the same choice has packed"));
  EXPECT_THAT(error({gate, pack, {.kind = OpKind::kPack, .inputs = {2, 1}}}),
              HasSubstr("packs a value by a gate's choice"));
  OpSpec learns = gate;
  learns.held = false;
  EXPECT_THAT(error({learns, pack}), HasSubstr("needs a logit for each of 2 options"));
  gate.options.pop_back();
  EXPECT_THAT(error({gate, pack}), HasSubstr("needs pairs of bits"));
}

}  // namespace
}  // namespace runnel::precision_test
