// WAGEUBN: its fixed points, norm and steps against values made outside, and whole models trained by
// it.

#include "kernels/ir/arithmetic/fixed_point.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::fixed_point_test {
namespace {

using nlohmann::json;

// Of tests/golden/fixed.py.
json Golden() {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/fixed.json");
  EXPECT_TRUE(file.good());
  return json::parse(file);
}

std::vector<float> OnGrid(OpCode code, const char* backend_name, int bits,
                          const std::vector<float>& x, bool is_open = false) {
  auto backend = *MakeBackend(backend_name, 1);
  const auto count = static_cast<int64_t>(x.size());
  Tensor in = Floats({1, count}, x), out = Zeros({1, count});
  EXPECT_TRUE(RunOp(code, {}, {&in}, {&out}, {}, 0, 0, backend.get(), {},
                    {.bits = bits, .is_open = is_open})
                  .ok());
  return ValuesOf(out);
}

TEST(FixedPoint, CodesAndHalfwayPointsAreTheGoldenOnes) {
  const json golden = Golden();
  for (const char* name : kGridBackends) {
    for (const json& c : golden["points"]) {
      const int bits = c["bits"].get<int>();
      const auto x = c["x"].get<std::vector<float>>();
      EXPECT_EQ(OnGrid(OpCode::kFixedPoint, name, bits, x), c["y"].get<std::vector<float>>())
          << name;
      EXPECT_EQ(OnGrid(OpCode::kFixedPoint, name, bits, x, /*is_open=*/true),
                c["open"].get<std::vector<float>>())
          << name;
    }
  }
}

// Saturating inputs behind sums of blocks are nearly all the same value, and nothing is learned.
TEST(FixedPoint, WeightsSaturateAndActivationsDoNot) {
  const ModelSpec model = *MakeModel("resnet8");
  const auto program = CompileStage(model, 0, model.layer_count() - 1, 2, **FindRecipe("wageubn"));
  ASSERT_TRUE(program.ok()) << program.status();
  int weights = 0, activations = 0;
  for (const Instruction& instruction : program->part(Part::kForward)) {
    if (instruction.code != OpCode::kFixedPoint) continue;
    const bool is_weight = program->buffers[instruction.inputs[0]].storage == Storage::kParameters;
    (is_weight ? weights : activations) += 1;
    EXPECT_EQ(instruction.grid.is_open, !is_weight);
  }
  EXPECT_GT(weights, 0);
  EXPECT_EQ(weights, activations);
}

TEST(FixedPoint, ErrorsAreTheGoldenOnes) {
  const json golden = Golden();
  for (const char* name : kGridBackends) {
    for (const json& c : golden["errors"]) {
      const int bits = c["bits"].get<int>();
      const auto x = c["x"].get<std::vector<float>>();
      EXPECT_EQ(OnGrid(OpCode::kShiftError, name, bits, x), c["shift"].get<std::vector<float>>());
      EXPECT_EQ(OnGrid(OpCode::kFlagError, name, bits, x), c["flag"].get<std::vector<float>>());
    }
  }
}

// max|dy| = 0.9, so a unit is 2^-7.
TEST(FixedPoint, FlagsAreTheSheetsFigures) {
  const std::vector<float> got =
      OnGrid(OpCode::kFlagError, "ref", 8, {0.9f, 0.5f, 0.003f, 0.0078f});
  EXPECT_EQ(got[1], 64 * 0x1p-7f);
  EXPECT_EQ(got[2], 49 * 0x1p-14f);
  EXPECT_EQ(got[3], 0x1p-7f);
}

TEST(FixedPoint, GradientsOfGivenDrawsAreTheGoldenOnes) {
  const json golden = Golden();
  for (const json& c : golden["gradients"]) {
    const auto x = c[0].get<float>(), u = c[1].get<float>();
    EXPECT_EQ(ConstantGradient(x, 1, u), c[2].get<float>()) << c;
    EXPECT_EQ(ConstantGradient(4 * x, 4, u), c[3].get<float>()) << c;
  }
}

TEST(FixedPoint, ReluMasksWhatIsShifted) {
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor dy = Floats({1, 4}, {1, 0.3f, -0.3f, 0.3f}), y = Floats({1, 4}, {0, 1, 2, -1});
    Tensor dx = Zeros({1, 4});
    ASSERT_TRUE(RunOp(OpCode::kShiftedReluInputGradient, {}, {&dy, &y}, {&dx}, {}, 0, 0,
                      backend.get(), {}, {.bits = 8})
                    .ok());
    EXPECT_THAT(ValuesOf(dx), testing::ElementsAre(0, 38 / 128.0f, -38 / 128.0f, 0)) << name;
  }
}

TEST(FixedPoint, NormsAreTheGoldenOnes) {
  const json golden = Golden();
  for (const json& c : golden["norms"]) {
    const auto values = c["x"].get<std::vector<float>>();
    const auto count = static_cast<int64_t>(values.size());
    const Shape shape = {2, 1, count / 2};
    for (const char* name : kGridBackends) {
      auto backend = *MakeBackend(name, 1);
      Tensor x = Floats(shape, values), y = Zeros(shape), stats = Zeros({2});
      Tensor dy = Floats(shape, c["dy"].get<std::vector<float>>()), dx = Zeros(shape);
      Tensor scale = Floats({1}, {c["scale"].get<float>()});
      Tensor shift = Floats({1}, {c["shift"].get<float>()}), sums = Zeros({2});
      Tensor mean = Zeros({1}), var = Zeros({1});
      mean.storage = var.storage = Storage::kStatistics;
      const OpSpec norm = {.kind = OpKind::kBatchNorm};
      ASSERT_TRUE(RunOp(OpCode::kFixedNormForward, norm, {&x, &scale, &shift},
                        {&y, &stats, &mean, &var}, {}, 0, 0, backend.get(), {}, {.bits = 8})
                      .ok());
      EXPECT_EQ(ValuesOf(y), c["y"].get<std::vector<float>>()) << name;
      EXPECT_EQ(stats.data()[0], c["mean"].get<float>());
      EXPECT_EQ(stats.data()[1], c["inverse"].get<float>());
      ASSERT_TRUE(RunOp(OpCode::kFixedNormInputGradient, norm, {&dy, &x, &scale, &stats},
                        {&dx, &sums}, {}, 0, 0, backend.get(), {}, {.bits = 8})
                      .ok());
      for (int64_t i = 0; i < count; ++i)
        EXPECT_NEAR(dx.data()[i], c["dx"][static_cast<size_t>(i)].get<double>(), 1e-6) << i;
      EXPECT_EQ(sums.data()[0], c["dscale"].get<float>()) << name;
      EXPECT_EQ(sums.data()[1], c["dshift"].get<float>()) << name;
    }
  }
}

// A step of one tensor: all values lie on their grids, and gradients a thousand times larger make the
// same step.
TEST(FixedPoint, StepsStayOnTheGridsAndKnowNoMagnitude) {
  constexpr int64_t kCount = 400;
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    std::vector<std::vector<float>> results;
    for (const float factor : {1.0f, 1024.0f}) {
      Tensor w = Zeros({kCount}), g = Normal({kCount}, 2, 2);
      Tensor slot = Zeros({kCount}), updated = Zeros({kCount});
      for (float& value : absl::MakeSpan(g.data(), kCount)) value *= factor;
      StepContext context;
      context.run_seed = 5;
      context.learning_rate = 0.05;
      context.momentum = 0.25;
      ASSERT_TRUE(RunOp(OpCode::kFixedUpdate, {}, {&w, &g, &slot}, {&updated}, context, 0, 0,
                        backend.get(), {}, {.bits = 24, .draws = 2})
                      .ok());
      double moved = 0;
      for (int64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(updated.data()[i], FixedValue(updated.data()[i], 24));
        EXPECT_EQ(slot.data()[i], FixedValue(slot.data()[i], 13));
        EXPECT_LE(std::abs(updated.data()[i]), 127 * 0x1p-14 * 26 / 512);
        moved += std::abs(updated.data()[i]);
      }
      EXPECT_GT(moved, 0);
      results.push_back(ValuesOf(updated));
    }
    EXPECT_EQ(results[0], results[1]) << name;
  }
}

TEST(FixedPoint, BitsOfProductsGradientsAreAParameter) {
  const ModelSpec model = *MakeModel("resnet8");
  const auto codes = [&](const char* recipe) {
    std::vector<OpCode> result;
    const auto program = CompileStage(model, 0, model.layer_count() - 1, 2, **FindRecipe(recipe));
    for (const Instruction& instruction : program->part(Part::kInputGradient))
      result.push_back(instruction.code);
    return result;
  };
  EXPECT_THAT(codes("wageubn"), testing::Contains(OpCode::kFlagError));
  EXPECT_EQ(codes("wageubn"), codes("wageubn:8"));
  EXPECT_THAT(codes("wageubn:16"), testing::Contains(OpCode::kShiftError));
  EXPECT_THAT(codes("wageubn:16"), testing::Not(testing::Contains(OpCode::kFlagError)));
  EXPECT_FALSE(FindRecipe("wageubn:12").ok());
}

TEST(FixedPoint, CutsAndUpdatesInTheBackwardChangeNoByte) {
  ExpectCutsChangeNoByte("resnet8", "wageubn", /*other=*/"wageubn:16");
}

TEST(FixedPoint, ResNet8LearnsOnBothBackends) {
  ExpectBothBackendsLearn("resnet8", "wageubn", 16, 0.9, 0.05);
}

}  // namespace
}  // namespace runnel::fixed_point_test
