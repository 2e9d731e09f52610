// SBM: the golden values of its grids, and whole models trained by it, cut and uncut.

#include <cstring>
#include <fstream>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/affine_grid.h"
#include "kernels/ir/recipe.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"

namespace runnel::sbm_test {
namespace {

using nlohmann::json;

std::vector<float> FloatsOf(const json& hex) {
  const std::string bytes = absl::HexStringToBytes(hex.get<std::string>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

json Golden() {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/affine.json");
  return json::parse(file)["affine"];
}

// The bits come from the micro-batch's level: the instruction has others.
TEST(Sbm, ValuesAreTheGoldenOnes) {
  for (const json& c : Golden()) {
    const std::vector<float> x = FloatsOf(c["x_hex"]), want = FloatsOf(c["dequant_hex"]);
    const auto size = static_cast<int64_t>(x.size());
    StepContext context;
    context.grid_bits = {c["bits"], 2};
    for (const char* name : kGridBackends) {
      SCOPED_TRACE(absl::StrCat(name, ", ", c["bits"].get<int>(), " bits"));
      auto backend = *MakeBackend(name, 1);
      for (const OpCode code :
           {OpCode::kAffineActivation, OpCode::kAffineActivationEval, OpCode::kAffineWeight}) {
        Tensor in = Floats({1, size}, x), out = Zeros({1, size});
        ASSERT_TRUE(
            RunOp(code, {}, {&in}, {&out}, context, 0, 0, backend.get(), {}, {.bits = 5}).ok());
        EXPECT_EQ(ValuesOf(out), want) << Name(code);
      }
    }
  }
}

// The draws are given there, so the arithmetic of single values is compared; that every backend
// draws and computes so is the conformance suite's.
TEST(Sbm, StochasticValuesAreTheGoldenOnes) {
  for (const json& c : Golden()) {
    if (!c.contains("noise_hex")) continue;
    const std::vector<float> x = FloatsOf(c["x_hex"]), noise = FloatsOf(c["noise_hex"]);
    const std::vector<float> want = FloatsOf(c["dequant_stochastic_hex"]);
    const AffineGrid grid = AffineGridOf({c["min"], c["max"]}, c["bits"]);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(NoisyAffineValue(x[i], noise[i], grid), want[i]) << i;
  }
}

TEST(Sbm, EachChannelOfWeightsHasItsOwnRange) {
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor w = Floats({2, 3}, {0, 0.4f, 1, -8, 3, 4}), v = Zeros({2, 3});
    ASSERT_TRUE(
        RunOp(OpCode::kAffineWeight, {}, {&w}, {&v}, {}, 0, 0, backend.get(), {}, {.bits = 2})
            .ok());
    EXPECT_THAT(ValuesOf(v), testing::ElementsAre(0, 1 / 3.0f, 1, -8, 4, 4)) << name;
  }
}

TEST(Sbm, EvaluationHasTheMeanRangeOfTraining) {
  for (const char* name : kGridBackends) {
    SCOPED_TRACE(name);
    auto backend = *MakeBackend(name, 1);
    Tensor range = Zeros({2});
    range.storage = Storage::kStatistics;
    for (const std::vector<float>& x : {std::vector<float>{0, 2, 4}, {-1, 2, 8}}) {
      Tensor in = Floats({1, 3}, x), out = Zeros({1, 3});
      ASSERT_TRUE(RunOp(OpCode::kAffineActivation, {}, {&in}, {&out, &range}, {}, 0, 0,
                        backend.get(), {}, {.bits = 8})
                      .ok());
    }
    EXPECT_THAT(ValuesOf(range), testing::ElementsAre(0.9f * 0 + 0.1f * -1, 0.9f * 4 + 0.1f * 8));
    Tensor in = Floats({1, 3}, {-100, 100, 0}), out = Zeros({1, 3});
    ASSERT_TRUE(RunOp(OpCode::kAffineActivationEval, {}, {&in, &range}, {&out}, {}, 0, 0,
                      backend.get(), {}, {.bits = 2})
                    .ok());
    EXPECT_NEAR(out.data()[0], -0.1, 1e-6);
    EXPECT_NEAR(out.data()[1], 4.4, 1e-6);
  }
}

// The mean of many roundings is the value.
TEST(Sbm, ErrorsAreRoundedWithoutBias) {
  constexpr int64_t kCount = 100'000;
  std::vector<float> x(kCount, 0.37f);
  x[0] = -1;
  x[1] = 1;
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor dy = Floats({10, kCount / 10}, x), out = Zeros({10, kCount / 10});
    ASSERT_TRUE(RunOp(OpCode::kAffineError, {}, {&dy}, {&out}, {}, 0, 0, backend.get(), {},
                      {.bits = 2, .is_gradient = true})
                    .ok());
    double sum = 0;
    for (int64_t i = 2; i < kCount; ++i) sum += out.data()[i];
    EXPECT_NEAR(sum / kCount, 0.37, 0.003) << name;
  }
}

TEST(Sbm, CutsAndUpdatesInTheBackwardChangeNoByte) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Training training = {.model = RandomModel(seed), .levels = {{3, 6}, {8, 8}}};
    if (training.model.layer_count() < 2) continue;
    const Trained whole = TrainOnGrids(training);
    training.steps = Steps::kAlone;
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << seed;
    training.steps = Steps::kApart;
    training.cuts = {training.model.layer_count() / 2};
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << seed;
  }
}

// A level of 8 bits everywhere is the recipe of 8 bits, whatever bits the recipe's name has.
TEST(Sbm, TheLevelDecidesTheBits) {
  const ModelSpec model = *MakeModel("lenet");
  const auto parameters = [&](const char* recipe, const GridBits& level) {
    return TrainOnGrids({.model = model, .recipe = recipe, .levels = {level}, .count = 2})
        .parameters;
  };
  const auto eight = parameters("sbm:8,8,8", {});
  EXPECT_EQ(parameters("sbm:4,3,6", {8, 8}), eight);
  EXPECT_NE(parameters("sbm:8,8,8", {3, 8}), eight);
  EXPECT_NE(parameters("sbm:8,8,8", {8, 6}), eight);
  EXPECT_EQ(parameters("dorefa:4,4,8", {3, 6}), parameters("dorefa:3,3,6", {}));
}

// Grids of depthwise convolutions alone have the same bits in all levels.
TEST(Sbm, DepthwiseConvolutionsKeepTheirBits) {
  const ModelSpec model = *MakeModel("ds_cnn");
  const Recipe& recipe = **FindRecipe("sbm:4,4,6");
  const ProductGrids* grids = recipe.GridsAt(Place::kDepthwise, OpKind::kConv);
  const ProductGrids* others = recipe.GridsAt(Place::kInner, OpKind::kConv);
  ASSERT_NE(grids, nullptr);
  ASSERT_NE(others, nullptr);
  for (const GridBits& level : {GridBits{}, GridBits{3, 6}, GridBits{8, 8}}) {
    EXPECT_EQ(grids->forward.weight->grid.BitsAt(level), 8);
    EXPECT_EQ(grids->forward.input->grid.BitsAt(level), 8);
    EXPECT_EQ(grids->weight_gradient.error->grid.BitsAt(level), 16);
  }
  EXPECT_EQ(others->forward.weight->grid.BitsAt({3, 6}), 3);
  EXPECT_EQ(others->weight_gradient.error->grid.BitsAt({3, 6}), 6);
  const auto parameters = [&](const char* name, const GridBits& level) {
    return TrainOnGrids({.model = model, .recipe = name, .levels = {level}, .count = 2}).parameters;
  };
  EXPECT_EQ(parameters("sbm:4,3,6", {8, 8}), parameters("sbm:8,8,8", {}));
}

TEST(Sbm, LeNetLearnsOnBothBackends) {
  const ModelSpec model = *MakeModel("lenet");
  const Trained on_ref = TrainOnGrids({.model = model, .backend = "ref", .count = 1});
  const Trained on_cpu = TrainOnGrids({.model = model, .count = 12});
  EXPECT_NEAR(on_cpu.losses[0], on_ref.losses[0], 0.02 * on_ref.losses[0]);
  EXPECT_LT(on_cpu.losses.back(), 0.8 * on_cpu.losses[0]);
}

}  // namespace
}  // namespace runnel::sbm_test
