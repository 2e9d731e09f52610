#include "proto/base/training/dials/cost_target.h"

#include <cstddef>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/precision/gate_cost.h"
#include "proto/base/training/recipe_family.h"

namespace runnel::cost_target_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(absl::string_view text) {
  return std::string(ParseCostTarget(text).status().message());
}

TEST(CostTarget, IsParsed) {
  EXPECT_THAT(ParseCostTarget("off")->percents, ElementsAre());
  EXPECT_THAT(ParseCostTarget("2.5")->percents, ElementsAre(2.5));
  const CostTargetSetting list = *ParseCostTarget("1.5,2,100@0.1,,50");
  EXPECT_THAT(list.percents, ElementsAre(1.5, 2, 100));
  EXPECT_EQ(list.rule_arguments, "0.1,,50");
}

TEST(CostTarget, WhatDoesNotFitIsNamed) {
  for (const char* text : {"", "0", "-1", "101", "nan", "inf", "x", "1,,2", "1.5,x"})
    EXPECT_THAT(Refusal(text), HasSubstr("is no percentage above 0 and up to 100")) << text;
  EXPECT_THAT(Refusal("2,1"), HasSubstr("targets do not rise from 2 to 1"));
  EXPECT_THAT(Refusal("2,2"), HasSubstr("targets do not rise"));
  EXPECT_THAT(Refusal("2@"), HasSubstr("nothing behind its @"));
  std::string many = "1";
  for (int i = 2; i < 67; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(Refusal(many), HasSubstr("66 targets, at most 64"));
}

TEST(CostTarget, LevelsComeByChanges) {
  const CostTargetSetting list = *ParseCostTarget("1,2,3");
  const std::vector<TrainingChange> changes = {ChangeOfCostTarget(5, 1), ChangeOfCostTarget(9, 2)};
  EXPECT_TRUE(CheckTrainingChanges(changes).ok());
  EXPECT_EQ(CostLevelAt(list, changes, 4), 0);
  EXPECT_EQ(CostLevelAt(list, changes, 5), 1);
  EXPECT_EQ(CostLevelAt(list, changes, 9), 2);
  EXPECT_EQ(CostLevelAt(list, {ChangeOfCostTarget(5, 9)}, 6), 2) << "of another list";
  EXPECT_EQ(CostLevelAt(*ParseCostTarget("off"), changes, 9), 0);
  EXPECT_FALSE(CheckTrainingChanges({{5, "cost_target", "64"}}).ok());
}

TEST(CostTarget, ThePriceHasTheSignThatLeadsBack) {
  EXPECT_EQ(PriceSign(2.5, 2), 1);
  EXPECT_EQ(PriceSign(1.5, 2), -1);
  EXPECT_EQ(PriceSign(2, 2), 0);
}

TEST(CostTarget, ItsRunsHaveTwoValuesBesideBoundaries) {
  const RecipeFamily& family = *ParseRecipeName("fp32")->family;
  TrainingSettings training;
  EXPECT_EQ(SidePayloadBytes(FormatOf(family, training), {4, 3}, Direction::kForward), 0);
  training.cost_target = "2";
  const NumberFormat format = FormatOf(family, training);
  EXPECT_EQ(SidePayloadBytes(format, {4, 3}, Direction::kForward), 4);
  EXPECT_EQ(SidePayloadBytes(format, {4, 3}, Direction::kBackward), 4);
}

// States of samples are whole lines of 64 bytes, so that a tensor of whole lines lies without gaps.
TEST(CostTarget, AStateThatLayersHandOnStandsInFrontOfItsValues) {
  const RecipeFamily& family = *ParseRecipeName("fp32")->family;
  TrainingSettings training;
  const auto linear = [](int32_t input, int64_t features) {
    return OpSpec{.kind = OpKind::kLinear, .inputs = {input}, .out_channels = features};
  };
  const OpSpec cell = {.kind = OpKind::kLstmCell, .inputs = {1}};
  const OpSpec carried = {.kind = OpKind::kCarriedState, .inputs = {0}};
  const OpSpec add = {.kind = OpKind::kAdd, .inputs = {2, 3}};
  const ModelSpec model{"state",
                        {4},
                        3,
                        {{"first", {linear(0, 4 * kLstmUnits), cell, linear(2, 5)}},
                         {"second", {carried, linear(1, 3), linear(0, 3), add}}}};
  ASSERT_TRUE(InferShapes(model, 2).ok());
  EXPECT_TRUE(CarriesState(model) && StateEnters(model, 1));
  EXPECT_FALSE(StateEnters(model, 0) || StateEnters(model, 2));
  constexpr int64_t kBytes = 5 * kLstmState * 4;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    training.cost_target = "off";
    EXPECT_EQ(SidePayloadBytes(FormatOf(family, training, model), {5, 3}, direction), kBytes);
    training.cost_target = "2";
    const NumberFormat format = FormatOf(family, training, model);
    EXPECT_EQ(SidePayloadBytes(format, {5, 3}, direction), 4 + kBytes);
    EXPECT_EQ(BoundaryBytes(format, {5, 16}, direction),
              5 * 16 * 4 + SidePayloadBytes(format, {5, 16}, direction));
    const SidePlace place = SidePlaces(format, {5, 3}, direction).at(0);
    EXPECT_EQ(place.payload_offset, 0u);
    EXPECT_EQ(place.memory_offset, 64u);
    std::vector<float> values(5 * kLstmState);
    const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(values.data()),
                                      values.size() * sizeof(float));
    EXPECT_TRUE(place.value->Check(bytes).ok());
    values[7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(place.value->Check(bytes).ok());
    values[7] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(place.value->Check(bytes).ok());
    values[7] = 1e6f;
    EXPECT_EQ(place.value->Check(bytes).ok(), direction == Direction::kBackward);
  }
}

// Two blocks with gates, the second of three times the multiply-adds.
ModelSpec TwoBlocks() {
  ModelSpec model{"two", {4, 6, 6}, 3, {}};
  for (const int64_t kernel : {1, 3}) {
    LayerSpec& layer = model.layers.emplace_back();
    layer.name = kernel == 1 ? "small" : "large";
    OpSpec gate{.kind = OpKind::kGate, .inputs = {0}};
    gate.options = {3, 6, 4, 6, 8, 8};
    layer.ops = {gate, {.kind = OpKind::kPack, .inputs = {0, 1}}};
    layer.ops.push_back({.kind = OpKind::kConv,
                         .inputs = {2},
                         .out_channels = 4,
                         .kernel = {kernel, 1},
                         .padding = {kernel / 2, 0}});
    layer.ops.push_back({.kind = OpKind::kUnpack, .inputs = {3, 1}});
    layer.ops.push_back({.kind = OpKind::kAdd, .inputs = {4, 0}});
  }
  LayerSpec& head = model.layers.emplace_back();
  head.name = "head";
  head.ops = {{.kind = OpKind::kGlobalAvgPool, .inputs = {0}},
              {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 3}};
  return model;
}

// Shares of FP32 as FracTrain counts them: 1.4648 %, 2.0833 % and 6.25 %.
TEST(GateCost, IsThePapersShareOfTheBlocks) {
  ModelSpec model = TwoBlocks();
  for (size_t i = 0; i < 2; ++i) model.layers[i].ops[0].held = true;
  const auto cost = GateCost::Of(model);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_FALSE(cost->learns());
  EXPECT_NEAR(cost->least_percent(), 1.46484375, 1e-9);
  EXPECT_NEAR(cost->most_percent(), 6.25, 1e-9);
  EXPECT_NEAR(cost->Percent(0, {5, 0, 0}), 1.46484375 / 4, 1e-9);
  EXPECT_NEAR(cost->Percent(1, {0, 7, 0}), 0.75 * 2.083333333, 1e-8);
  EXPECT_NEAR(cost->Percent(1, {1, 0, 1}), 0.75 * (1.46484375 + 6.25) / 2, 1e-9);
  EXPECT_EQ(cost->Percent(2, {1, 0, 1}), 0) << "has no gate";
  EXPECT_EQ(cost->Percent(1, {0, 0, 0}), 0);
  model.layers.erase(model.layers.begin(), model.layers.begin() + 2);
  model.input = {4, 6, 6};
  EXPECT_EQ(GateCost::Of(model)->most_percent(), 0) << "no gates";
}

}  // namespace
}  // namespace runnel::cost_target_test
