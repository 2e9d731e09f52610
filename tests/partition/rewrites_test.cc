#include "partition/zoo/rewrites/rewrites.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/training/precision/gate_options.h"
#include "proto/base/training/recipe_family.h"

namespace runnel::rewrites_test {
namespace {

using ::testing::HasSubstr;

// What every row promises.
TEST(Rewrites, EachHasANameOfItsOwnAndRefusesNonsense) {
  for (const RewriteRow& row : Rewrites()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.name.find_first_of(":, "), row.name.npos);
    EXPECT_FALSE(row.arguments.empty());
    EXPECT_FALSE(row.summary.empty());
    const ModelSpec model = *MakeModel("lenet");
    for (const std::string bad : {"", "?", "\xff"}) {
      const absl::Status status = Rewrite(model, {std::string(row.name) + ":" + bad}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
      EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
    }
  }
  EXPECT_EQ(*Rewrite(*MakeModel("lenet"), {}), *MakeModel("lenet"));
}

std::string ErrorOf(const std::string& model, const std::vector<std::string>& rewrites) {
  return std::string(Rewrite(*MakeModel(model), rewrites).status().message());
}

TEST(Freeze, ACountOrARange) {
  const ModelSpec vgg = *MakeModel("vgg11");
  EXPECT_EQ(vgg.frozen_front(), 0);
  const ModelSpec count = *Rewrite(vgg, {"freeze:6"});
  EXPECT_EQ(count, *Rewrite(vgg, {"freeze:0-5"}));
  EXPECT_EQ(*Rewrite(vgg, {"freeze:all-but-head"}),
            *Rewrite(vgg, {"freeze:" + std::to_string(vgg.layer_count() - 1)}));
  EXPECT_EQ(count, *Rewrite(vgg, {"freeze:0-2", "freeze:3-5"}));
  for (int layer = 0; layer < vgg.layer_count(); ++layer)
    EXPECT_EQ(count.layers[layer].frozen, layer < 6) << layer;
  EXPECT_EQ(count.frozen_front(), 6);
  const ModelSpec middle = *Rewrite(vgg, {"freeze:2-3"});
  EXPECT_TRUE(middle.layers[3].frozen);
  EXPECT_EQ(middle.frozen_front(), 0) << "gradients pass";
}

TEST(Freeze, OfEveryModelAllButTheLastLayer) {
  for (const std::string& name : ModelNames()) {
    const ModelSpec model = *MakeModel(name);
    const auto frozen = Rewrite(model, {"freeze:" + std::to_string(model.layer_count() - 1)});
    ASSERT_TRUE(frozen.ok()) << name << ": " << frozen.status();
    EXPECT_EQ(frozen->frozen_front(), model.layer_count() - 1) << name;
  }
}

TEST(Freeze, WhatMakesNoSenseIsNamed) {
  EXPECT_THAT(
      ErrorOf("lenet", {"melt:3"}),
      HasSubstr(
          "melt:3: there is no such rewrite; there are freeze:LAYERS, lora:RANK, head:CLASSES"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:0"}), HasSubstr("'0' is no number of layers"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:3-1"}), HasSubstr("no range such as 0-5"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:1-"}), HasSubstr("no range such as 0-5, nor all-but-head"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:2-6"}),
              HasSubstr("layer 6 is beyond the model, lenet has layers 0 to 5"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:7"}), HasSubstr("layer 6 is beyond the model"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:6"}), HasSubstr("all 6 layers of lenet would be frozen"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:0-2", "freeze:3-5"}), HasSubstr("all 6 layers"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:4-5"}), HasSubstr("makes the loss and must be trained"));
  EXPECT_THAT(ErrorOf("resnet18", {"freeze:2-3"}), HasSubstr("has batch norm"));
}

int64_t Trained(const ModelSpec& model) {
  int64_t elements = 0;
  const std::vector<LayerInfo> infos = *InferShapes(model, 1);
  for (const LayerInfo& info : infos) {
    for (const StateTensorSpec& spec : info.state)
      elements += IsTrainable(spec.role) && !spec.frozen ? spec.shape.elements() : 0;
  }
  return elements;
}

std::vector<std::string> NamesOf(const LayerInfo& info) {
  std::vector<std::string> names;
  for (const StateTensorSpec& spec : info.state) names.push_back(spec.name);
  return names;
}

TEST(Lora, PairsOfAttentionAloneTrainAndNamesStay) {
  const ModelSpec base = *MakeModel("transformer_tiny");
  const ModelSpec model = *Rewrite(base, {"lora:8"});
  EXPECT_EQ(Trained(model), 4 * 8 * (128 + 384 + 128 + 128));
  EXPECT_LE(Trained(model), 0.03 * static_cast<double>(*CountParameters(base)));
  EXPECT_EQ(model.frozen_front(), 1);
  const std::vector<LayerInfo> infos = *InferShapes(model, 1), before = *InferShapes(base, 1);
  for (int layer = 0; layer < base.layer_count(); ++layer) {
    std::vector<std::string> kept;
    for (const std::string& name : NamesOf(infos[layer])) {
      if (name.find(".down.") == name.npos && name.find(".up.") == name.npos) kept.push_back(name);
    }
    EXPECT_EQ(kept, NamesOf(before[layer])) << layer;
    EXPECT_EQ(infos[layer].output, before[layer].output);
  }
  const LayerSpec& block = model.layers[1];
  EXPECT_EQ(block.ops[2].name, "1.down");
  EXPECT_EQ(block.ops[3].init_std, 0);
  EXPECT_EQ(block.ops[5].kind, OpKind::kAttention);
  EXPECT_EQ(block.ops[5].inputs, std::vector<int32_t>{5}) << "the sum";
}

TEST(Lora, WithoutAttentionBesideAllThatIsLinearAndNotFrozen) {
  const ModelSpec lenet = *Rewrite(*MakeModel("lenet"), {"lora:4"});
  EXPECT_EQ(lenet.frozen_front(), 4);
  EXPECT_TRUE(HasPairs(lenet));
  const ModelSpec less = *Rewrite(*MakeModel("lenet"), {"lora:4", "freeze:5"});
  EXPECT_EQ(less, *Rewrite(*MakeModel("lenet"), {"freeze:5", "lora:4"}));
  EXPECT_EQ(less.frozen_front(), 5);
  EXPECT_LT(Trained(less), Trained(lenet));
}

TEST(Lora, OfEveryModelThatTakesIt) {
  for (const std::string& name : ModelNames()) {
    const auto model = Rewrite(*MakeModel(name), {"lora:2"});
    if (name == "mobilenet_v3_small") {
      // Its gates are linear, in front of frozen batch norm.
      EXPECT_THAT(std::string(model.status().message()), HasSubstr("batch norm that is frozen"));
      continue;
    }
    ASSERT_TRUE(model.ok()) << name << ": " << model.status();
    EXPECT_GT(Trained(*model), 0) << name;
    EXPECT_LT(Trained(*model), *CountParameters(*MakeModel(name)) / 2) << name;
  }
}

TEST(Lora, WhatMakesNoSenseIsNamed) {
  EXPECT_THAT(ErrorOf("lenet", {"lora:0"}), HasSubstr("lora:0: '0' is no rank from 1"));
  EXPECT_THAT(ErrorOf("lenet", {"lora:11"}),
              HasSubstr("500 features become 10; a pair's rank is at most 10"));
  EXPECT_THAT(ErrorOf("lenet", {"lora:2", "lora:2"}), HasSubstr("such pairs already"));
  ModelSpec model = *MakeModel("lenet");
  model.layers.resize(1);
  model.layers[0].ops[0].kind = OpKind::kRelu;
  model.input = {10};
  EXPECT_THAT(std::string(Rewrite(model, {"lora:2"}).status().message()),
              HasSubstr("lora:2: lenet has no linear operator that is not frozen"));
}

TEST(Lora, OnlyItsOwnPairsAreMerged) {
  ModelSpec model = *Rewrite(*MakeModel("lenet"), {"lora:4"});
  ModelState state = *InitialState(model, 1);
  ModelState kept = state;
  EXPECT_TRUE(MergePairs(model, state).ok());
  EXPECT_FALSE(HasPairs(model));
  EXPECT_EQ(NamesOf(InferShapes(model, 1)->back()),
            NamesOf(InferShapes(*MakeModel("lenet"), 1)->back()));
  for (auto spoil : {+[](ModelSpec&m, ModelState&) { m.layers.back().ops[1].inputs = {1}; },
                     +[](ModelSpec&m, ModelState&) { m.layers.back().ops.pop_back(); },
                     +[](ModelSpec&, ModelState&s) { s.layers.back().tensors.pop_back(); },
                     +[](ModelSpec&, ModelState&s) { s.layers.back().tensors[0].bytes.pop_back(); },
                     +[](ModelSpec&, ModelState&s) { s.layers.pop_back(); }}) {
    ModelSpec other = *Rewrite(*MakeModel("lenet"), {"lora:4"});
    ModelState damaged = kept;
    spoil(other, damaged);
    EXPECT_EQ(MergePairs(other, damaged).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(MarkRecomputed, ACountOrARange) {
  const ModelSpec model = *MarkRecomputed(*MakeModel("lenet"), "1-2");
  for (int layer = 0; layer < model.layer_count(); ++layer)
    EXPECT_EQ(model.layers[layer].recompute, layer == 1 || layer == 2);
  EXPECT_TRUE(MarkRecomputed(*MakeModel("lenet"), "6")->layers[5].recompute);
  for (const char* bad : {"", "x", "0", "7", "2-6", "3-1"})
    EXPECT_EQ(MarkRecomputed(*MakeModel("lenet"), bad).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
}

TEST(WithStash, IsOfAllLayersAndAFloatOfFewBits) {
  for (const auto& [name, type] : std::vector<std::pair<const char*, DType>>{
           {"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16}, {"e5m2", DType::kE5M2}}) {
    const ModelSpec model = *WithStash(*MakeModel("lenet"), name);
    for (const LayerSpec& layer : model.layers) EXPECT_EQ(layer.stash, type);
  }
  for (const char* bad : {"", "f32", "i8", "f16", "bf16:2"})
    EXPECT_THAT(std::string(WithStash(*MakeModel("lenet"), bad).status().message()),
                HasSubstr("kept as fp16, bf16, e4m3, e5m2, or off"))
        << bad;
}

TEST(Head, IsAnotherNumberOfClassesAndTrains) {
  const ModelSpec model = *Rewrite(*MakeModel("lenet"), {"head:4"});
  EXPECT_EQ(model.classes, 4);
  EXPECT_EQ(InferShapes(model, 3)->back().output, Shape({3, 4}));
  EXPECT_EQ(Trained(model), *CountParameters(model));
  // Before pairs or behind them: the head is whole.
  const ModelSpec both = *Rewrite(*MakeModel("lenet"), {"head:4", "lora:8"});
  EXPECT_EQ(both, *Rewrite(*MakeModel("lenet"), {"lora:8", "head:4"}));
  EXPECT_EQ(both.layers.back().ops.size(), 1u);
  EXPECT_FALSE(both.layers.back().freezes(0));
  const ModelSpec text = *Rewrite(*MakeModel("transformer_tiny"), {"head:9", "lora:8"});
  EXPECT_TRUE(text.layers.back().freezes(0)) << "the norm before it";
  EXPECT_FALSE(text.layers.back().freezes(1));
}

TEST(Head, WhatMakesNoSenseIsNamed) {
  EXPECT_THAT(ErrorOf("lenet", {"head:1"}),
              HasSubstr("head:1: '1' is no number of classes from 2"));
  ModelSpec model = *MakeModel("lenet");
  model.layers.resize(1);
  EXPECT_THAT(std::string(Rewrite(model, {"head:3"}).status().message()),
              HasSubstr("only a linear operator at the model's end can be replaced"));
}

std::string GatesError(const std::string& model, const std::string& gates) {
  return std::string(AddGates(*MakeModel(model), gates).status().message());
}

TEST(Gates, PackEachResidualBlock) {
  const ModelSpec plain = *MakeModel("resnet38");
  const ModelSpec gated = *AddGates(plain, "ff:0,3,8/6,6,8@hold:0.25");
  int gates = 0;
  for (size_t i = 0; i < gated.layers.size(); ++i) {
    if (gated.layers[i].ops[0].kind != OpKind::kGate) {
      EXPECT_EQ(gated.layers[i], plain.layers[i]);
      continue;
    }
    ++gates;
    const OpSpec& gate = gated.layers[i].ops[0];
    EXPECT_TRUE(gate.held);
    EXPECT_EQ(gate.rate, 0.25);
    EXPECT_THAT(gate.options, testing::ElementsAre(0, 6, 3, 6, 8, 8));
    // The names of tensors stay, and so does what is behind a projection.
    const LayerInfo was = (*InferShapes(plain, 2))[i], is = (*InferShapes(gated, 2))[i];
    EXPECT_EQ(is.output, was.output);
    EXPECT_EQ(is.macs, was.macs);
    std::set<std::string> old_names, new_names;
    for (const StateTensorSpec& spec : was.state) old_names.insert(spec.name);
    for (const StateTensorSpec& spec : is.state) new_names.insert(spec.name);
    EXPECT_EQ(new_names, old_names);
  }
  EXPECT_EQ(gates, 18);
  EXPECT_TRUE(AddGates(*MakeModel("mobilenet_v2"), "ff:0,32/32,32@hold:1").ok());
}

TEST(Gates, ThoseThatLearnReadTheBlocksInputAndPayByItsSize) {
  const ModelSpec gated = *AddGates(*MakeModel("resnet20"), "ff:3,8/6,8@beta:0.01");
  double prices = 0;
  int gates = 0;
  for (const LayerSpec& layer : gated.layers) {
    if (layer.ops[0].kind != OpKind::kGlobalAvgPool || layer.ops.size() < 6) continue;
    EXPECT_TRUE(LeadsToGate(layer, 1) && LeadsToGate(layer, 3) && LeadsToGate(layer, 4));
    EXPECT_FALSE(LeadsToGate(layer, 7)) << "a convolution of the block";
    const OpSpec& gate = layer.ops[5];
    ASSERT_EQ(gate.kind, OpKind::kGate);
    EXPECT_FALSE(gate.held);
    prices += gate.rate;
    ++gates;
  }
  EXPECT_EQ(gates, 9);
  EXPECT_NEAR(prices / gates, 0.01, 1e-12) << "the mean block pays the price";
}

// The first gate begins at a state of zeros, the others read that of the gate in front.
TEST(Gates, AnLstmHandsItsStateOn) {
  const ModelSpec gated = *AddGates(*MakeModel("resnet20"), "lstm:3,8/6,8@beta:0.01");
  EXPECT_TRUE(CarriesState(gated));
  EXPECT_FALSE(CarriesState(*AddGates(*MakeModel("resnet20"), "ff:3,8/6,8")));
  int cells = 0;
  for (int i = 0; i < gated.layer_count(); ++i) {
    const LayerSpec& layer = gated.layers[static_cast<size_t>(i)];
    for (size_t op = 0; op < layer.ops.size(); ++op) {
      if (layer.ops[op].kind != OpKind::kLstmCell) continue;
      EXPECT_EQ(layer.ops[op].inputs.size(), cells == 0 ? 1u : 2u);
      EXPECT_EQ(StateEnters(gated, i), cells > 0) << i;
      EXPECT_EQ(StateEnters(gated, i + 1), cells < 8) << i;
      for (size_t before = 0; before < op; ++before) EXPECT_TRUE(LeadsToGate(layer, before));
      ++cells;
    }
  }
  EXPECT_EQ(cells, 9);
  EXPECT_EQ(*AddGates(*MakeModel("resnet20"), "lstm:0,8/6,8@hold:0.5"),
            *AddGates(*MakeModel("resnet20"), "ff:0,8/6,8@hold:0.5"));
}

TEST(Gates, WhatMakesNoSenseIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"ff:0,32/32@hold:0.5", "2 options of weights and activations, 1 of gradients"},
      {"ff:0,32/32,32@hold:1.5", "no @hold:SHARE with a share from 0 to 1"},
      {"ff:0,32/32,32@keep:1", "no @hold:SHARE"},
      {"ff:0,32/32,32@beta:2", "nor @beta:PRICE with a price from 0 to 1"},
      {"ff:32/32", "chooses among two options or more"},
      {"ff:0,8,4/8,8,8@hold:0", "bits fall, or none rises, from option 1 to 2"},
      {"ff:4,8/8,8@hold:0.5", "begin the first list with 0"},
      {"ff:0/8@hold:0.5", "all options skip"},
      {"ff:0,17/8,8@hold:0.5", "'17' is none of"},
      {"ff:0,8@hold:0.5", "no two lists"},
      {"cnn:0,8/8,8@hold:0.5", "a gate is ff or lstm"}};
  for (const auto& [gates, message] : cases)
    EXPECT_THAT(GatesError("resnet20", gates), HasSubstr(message)) << gates;
  EXPECT_THAT(GatesError("lenet", "ff:0,32/32,32@hold:0.5"),
              HasSubstr("model lenet has no residual blocks; take one that has"));
}

// What no command writes can stand in a message or a check-point.
TEST(Gates, WhatWouldBeComputedWrongIsNotTrained) {
  const auto refusal = [](const ModelSpec& model, absl::string_view name) {
    for (const RecipeFamily& family : RecipeFamilies()) {
      if (family.name == name) return std::string(CheckTrainable(model, family).message());
    }
    return std::string("no such family");
  };
  ModelSpec model = *AddGates(*MakeModel("resnet20"), "ff:0,32/32,32");
  EXPECT_EQ(refusal(model, "fp32"), "");
  for (LayerSpec& layer : model.layers) layer.recompute = true;
  EXPECT_THAT(refusal(model, "fp32"), HasSubstr("leave --recompute or --gates out"));
  for (LayerSpec& layer : model.layers) layer.recompute = false;
  EXPECT_THAT(refusal(*WithStash(model, "bf16"), "fp32"),
              HasSubstr("leave --stash or --gates out"));
  ModelSpec stashed = *MakeModel("lenet");
  stashed.layers[1].stash = DType::kInt8;
  EXPECT_THAT(refusal(stashed, "fp32"), HasSubstr("nothing is kept as i8"));
  EXPECT_EQ(refusal(*AddGates(*MakeModel("resnet20"), "ff:0,4,8/8,8,8"), "sbm"), "");
  EXPECT_THAT(refusal(*AddGates(*MakeModel("resnet20"), "ff:0,4,32/8,8,32"), "sbm"),
              HasSubstr("has no price beside grids"));
  EXPECT_EQ(refusal(*AddGates(*MakeModel("resnet20"), "ff:0,4,32/8,8,32@hold:0.5"), "sbm"), "");
  ModelSpec held = *AddGates(*MakeModel("resnet20"), "ff:0,8/8,8@hold:0.5");
  for (LayerSpec& layer : held.layers) {
    if (layer.ops[0].kind == OpKind::kGate) layer.ops[0].options = {8, 8};
  }
  EXPECT_THAT(std::string(InferShapes(held, 2).status().message()),
              HasSubstr("holds samples back, and no option skips"));
}

}  // namespace
}  // namespace runnel::rewrites_test
