// Grids by place and product: where operators stand, and what each product reads.

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/operator_place.h"
#include "partition/zoo/zoo.h"

namespace runnel::product_grids_test {
namespace {

std::map<Place, int> PlacesOf(const char* name) {
  const ModelSpec model = *MakeModel(name);
  const auto infos = *InferShapes(model, 1);
  std::map<Place, int> counts;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const std::vector<OpSpec>& ops = model.layers[static_cast<size_t>(layer)].ops;
    for (size_t op = 0; op < ops.size(); ++op)
      if (HasProducts(ops[op])) ++counts[PlaceOf(model, infos, layer, static_cast<int>(op))];
  }
  return counts;
}

TEST(ProductGrids, PlacesOfTheZoo) {
  using testing::Pair;
  using testing::UnorderedElementsAre;
  const auto first = Pair(Place::kFirst, 1), last = Pair(Place::kLast, 1);
  EXPECT_THAT(PlacesOf("vgg11"), UnorderedElementsAre(first, last, Pair(Place::kInner, 7)));
  // Two convolutions a block, and a projection in three of eight.
  EXPECT_THAT(PlacesOf("resnet18"), UnorderedElementsAre(first, last, Pair(Place::kInner, 16),
                                                         Pair(Place::kShortcut, 3)));
  EXPECT_EQ(PlacesOf("mobilenet_v2")[Place::kDepthwise], 17);
}

// A grid of its own bits for each operand of each product.
ProductGrids SixGrids() {
  ProductGrids grids;
  const auto activation = [](int bits) {
    return Quantizer{OpCode::kAffineActivation, {.bits = bits}};
  };
  const auto weight = [](int bits) { return Quantizer{OpCode::kAffineWeight, {.bits = bits}}; };
  const auto error = [](int bits) {
    return Quantizer{OpCode::kAffineError, {.bits = bits, .is_gradient = true}};
  };
  grids.forward = {
      InputQuantizer{OpCode::kAffineActivation, OpCode::kAffineActivationEval, {.bits = 2}},
      weight(3)};
  grids.input_gradient = {error(4), weight(5)};
  grids.weight_gradient = {error(6), activation(7)};
  return grids;
}

// The bits of the grids of both operands of the product of a layer: 32 for those on none.
std::pair<int, int> BitsOf(const Program& program, Part part, int layer, OpCode product) {
  for (const Instruction& one : program.part(part)) {
    if (one.layer != layer || one.code != product) continue;
    std::pair<int, int> bits = {32, 32};
    for (const Part from : {Part::kForward, Part::kInputGradient, Part::kWeightGradient}) {
      for (const Instruction& maker : program.part(from)) {
        if (maker.grid.bits == 32) continue;
        if (maker.outputs[0] == one.inputs[0]) bits.first = maker.grid.bits;
        if (maker.outputs[0] == one.inputs[1]) bits.second = maker.grid.bits;
      }
    }
    return bits;
  }
  return {0, 0};
}

ModelSpec ThreeLinears() {
  const auto linear = [](int64_t features) {
    return OpSpec{.kind = OpKind::kLinear, .inputs = {0}, .out_channels = features};
  };
  ModelSpec model{"three", {6}, 4, {}};
  model.layers = {{"a", {linear(7)}}, {"b", {linear(5)}}, {"c", {linear(4)}}};
  return model;
}

TEST(ProductGrids, EachOperandOfEachProductHasItsOwn) {
  Recipe recipe = **FindRecipe("fp32");
  recipe.grids = {{.grids = SixGrids()}};
  ASSERT_TRUE(CheckRecipe(recipe).ok());
  const auto program = CompileStage(ThreeLinears(), 0, 2, 2, recipe);
  ASSERT_TRUE(program.ok()) << program.status();
  for (const int layer : {0, 1, 2}) {
    EXPECT_EQ(BitsOf(*program, Part::kForward, layer, OpCode::kLinearForward), std::pair(2, 3));
    EXPECT_EQ(BitsOf(*program, Part::kWeightGradient, layer, OpCode::kLinearWeightGradient),
              std::pair(6, 7));
    if (layer == 0) continue;  // nobody wants the samples' gradient
    EXPECT_EQ(BitsOf(*program, Part::kInputGradient, layer, OpCode::kLinearInputGradient),
              std::pair(4, 5));
  }
  for (const Instruction& one : program->part(Part::kInputGradient))
    EXPECT_FALSE(one.layer == 0 && one.grid.bits == 4) << "rounded for nobody";
}

TEST(ProductGrids, NoneIsTheValueAsItIs) {
  Recipe recipe = **FindRecipe("fp32");
  ProductGrids grids = SixGrids();
  grids.input_gradient = {};
  grids.weight_gradient = {};
  recipe.grids = {{.grids = grids}};
  const auto program = CompileStage(ThreeLinears(), 0, 2, 2, recipe);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(BitsOf(*program, Part::kForward, 1, OpCode::kLinearForward), std::pair(2, 3));
  EXPECT_EQ(BitsOf(*program, Part::kInputGradient, 1, OpCode::kLinearInputGradient),
            std::pair(32, 32));
  EXPECT_EQ(BitsOf(*program, Part::kWeightGradient, 1, OpCode::kLinearWeightGradient),
            std::pair(32, 32));
}

// One grid in two products is one instruction, as with one grid for all.
TEST(ProductGrids, WhatTwoProductsReadIsRoundedOnce) {
  Recipe recipe = **FindRecipe("fp32");
  ProductGrids grids = SixGrids();
  grids = GridsOfAllProducts(grids.forward.weight, grids.forward.input, grids.input_gradient.error);
  recipe.grids = {{.grids = grids}};
  const auto program = CompileStage(ThreeLinears(), 0, 2, 2, recipe);
  ASSERT_TRUE(program.ok()) << program.status();
  std::map<OpCode, int> counts;
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient})
    for (const Instruction& one : program->part(part)) ++counts[one.code];
  EXPECT_EQ(counts[OpCode::kAffineActivation], 3);
  EXPECT_EQ(counts[OpCode::kAffineError], 3);
  EXPECT_EQ(counts[OpCode::kAffineWeight], 3 + 2);
}

TEST(ProductGrids, TheFirstRowThatFitsCounts) {
  static constexpr Place kLast[] = {Place::kLast};
  Recipe recipe = **FindRecipe("fp32");
  ProductGrids last = SixGrids();
  last.forward.weight->grid.bits = 11;
  recipe.grids = {{.places = kLast, .grids = last}, {.op = OpKind::kLinear, .grids = SixGrids()}};
  EXPECT_EQ(recipe.GridsAt(Place::kLast, OpKind::kConv)->forward.weight->grid.bits, 11);
  EXPECT_EQ(recipe.GridsAt(Place::kInner, OpKind::kConv), nullptr);
  const auto program = CompileStage(ThreeLinears(), 0, 2, 2, recipe);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(BitsOf(*program, Part::kForward, 1, OpCode::kLinearForward).second, 3);
  EXPECT_EQ(BitsOf(*program, Part::kForward, 2, OpCode::kLinearForward).second, 11);
}

TEST(ProductGrids, AGridWithoutBitsIsRefused) {
  Recipe recipe = **FindRecipe("fp32");
  ProductGrids grids = SixGrids();
  grids.weight_gradient.input->grid.bits = 17;
  recipe.grids = {{.grids = grids}};
  EXPECT_EQ(CheckRecipe(recipe).message(), "recipe fp32: a grid has 1 to 16 bits");
  recipe.grids[0].grids = {.master_gradient = OpCode::kFakeQuantizeWeightGradient};
  EXPECT_THAT(std::string(CheckRecipe(recipe).message()), testing::HasSubstr("a grid of weights"));
}

}  // namespace
}  // namespace runnel::product_grids_test
