// Adaptive fixed point: its grids and widths against values made outside, and whole models trained by
// it.

#include "kernels/ir/arithmetic/fixed_width.h"

#include <cstring>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::fixed_width_test {
namespace {

using nlohmann::json;

// Of tests/golden/fixed.py.
json Golden() {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/fixed.json");
  EXPECT_TRUE(file.good());
  return json::parse(file);
}

WidthState StateOf(Tensor& tensor) {
  WidthState state;
  std::memcpy(static_cast<void*>(&state), tensor.data(), sizeof(state));
  return state;
}

Tensor Kept(const WidthState& state) {
  Tensor kept = Zeros({kWidthWords});
  kept.storage = Storage::kStatistics;
  std::memcpy(kept.data(), &state, sizeof(state));
  return kept;
}

TEST(FixedWidth, StepsAreTheGoldenOnes) {
  const json golden = Golden();
  for (const json& c : golden["exponents"])
    EXPECT_EQ(WidthExponent(c[0].get<float>(), c[1].get<int>()), c[2].get<int>()) << c;
}

TEST(FixedWidth, CodesAndHalfwayPointsAreTheGoldenOnes) {
  const json golden = Golden();
  for (const json& c : golden["widths"]) {
    const auto x = c["x"].get<std::vector<float>>(), y = c["y"].get<std::vector<float>>();
    WidthState state;
    state.bits = c["bits"].get<float>();
    state.exponent = c["exponent"].get<float>();
    const auto count = static_cast<int64_t>(x.size());
    for (const char* name : kGridBackends) {
      auto backend = *MakeBackend(name, 1);
      Tensor in = Floats({1, count}, x), out = Zeros({1, count}), read = Kept(state);
      ASSERT_TRUE(
          RunOp(OpCode::kAdaptWidth, {}, {&in, &read}, {&out}, {}, 0, 0, backend.get()).ok());
      EXPECT_EQ(ValuesOf(out), y) << name << " " << state.bits << " " << state.exponent;
    }
  }
}

// What is measured, when, and what it becomes.
TEST(FixedWidth, SchedulesAreTheGoldenOnes) {
  const json golden = Golden();
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    for (const json& c : golden["schedules"]) {
      Tensor kept = Kept({});
      for (size_t step = 0; step < c["tensors"].size(); ++step) {
        const auto x = c["tensors"][step].get<std::vector<float>>();
        const json& want = c["states"][step];
        const auto count = static_cast<int64_t>(x.size());
        Tensor in = Floats({1, count}, x), out = Zeros({1, count});
        ASSERT_TRUE(
            RunOp(OpCode::kAdaptWidth, {}, {&in}, {&out, &kept}, {}, 0, 0, backend.get()).ok());
        const WidthState got = StateOf(kept);
        ASSERT_EQ(got.bits, want[0].get<float>()) << name << ", step " << step;
        ASSERT_EQ(got.exponent, want[1].get<float>()) << step;
        ASSERT_NEAR(got.moving, want[2].get<float>(), 1e-5) << step;
        ASSERT_EQ(got.wait, want[3].get<float>()) << step;
        ASSERT_NEAR(got.error, want[4].get<float>(), 1e-6) << step;
        ASSERT_TRUE(IsValid(got));
        ASSERT_EQ(got.used[0] + got.used[1] + got.used[2], static_cast<float>(step + 1));
      }
    }
  }
}

// What 16 bits round to 0 takes 24.
TEST(FixedWidth, WidthsGrowAsFarAsTheMeanNeeds) {
  for (const auto& [small, bits] :
       {std::pair(0.2f, 8), std::pair(0.003f, 16), std::pair(1e-5f, 24)}) {
    std::vector<float> x(4001, small);
    x[0] = 1;
    Tensor in = Floats({1, 4001}, x), out = Zeros({1, 4001}), kept = Kept({});
    ASSERT_TRUE(RunOp(OpCode::kAdaptWidth, {}, {&in}, {&out, &kept}).ok());
    EXPECT_EQ(StateOf(kept).bits, static_cast<float>(bits)) << small;
    EXPECT_EQ(StateOf(kept).used[bits / 8 - 1], 1);
  }
}

TEST(FixedWidth, LogarithmsAreThoseOfTheLibrary) {
  for (double x = 0; x < 40; x = x * 1.3 + 1e-4)
    EXPECT_NEAR(LogOfOnePlus(x), std::log2(1 + x), 1e-14 * (1 + x)) << x;
}

TEST(FixedWidth, ZerosAndNansStay) {
  Tensor zeros = Zeros({1, 3}), out = Normal({1, 3}, 1, 1), kept = Kept({});
  ASSERT_TRUE(RunOp(OpCode::kAdaptWidth, {}, {&zeros}, {&out, &kept}).ok());
  EXPECT_THAT(ValuesOf(out), testing::Each(0.0f));
  EXPECT_EQ(StateOf(kept).exponent, -12);
  const WidthState before = StateOf(kept);
  Tensor wild = Floats({1, 2}, {INFINITY, NAN}), same = Zeros({1, 2});
  ASSERT_TRUE(RunOp(OpCode::kAdaptWidth, {}, {&wild}, {&same, &kept}).ok());
  EXPECT_EQ(std::memcmp(&before, kept.data(), sizeof(before)), 0);
  EXPECT_TRUE(std::isnan(same.data()[1]));
}

TEST(FixedWidth, NumbersThatNoTrainingMadeAreRefused) {
  EXPECT_TRUE(IsValid(WidthState{}));
  EXPECT_FALSE(IsValid({.bits = 9}));
  EXPECT_FALSE(IsValid({.bits = 8, .exponent = 0.5f}));
  EXPECT_FALSE(IsValid({.bits = 8, .exponent = 1e6f}));
  EXPECT_FALSE(IsValid({.bits = 8, .wait = -1}));
  EXPECT_FALSE(IsValid({.bits = 8, .moving = NAN}));
  Tensor in = Floats({1, 2}, {1, 0.5f}), out = Zeros({1, 2}), kept = Kept({.bits = 3, .wait = 5});
  ASSERT_TRUE(RunOp(OpCode::kAdaptWidth, {}, {&in}, {&out, &kept}).ok());
  EXPECT_EQ(StateOf(kept).bits, 8) << "counts as not measured yet";
  EXPECT_EQ(StateOf(kept).measured, 1);
}

// Widths of a stage's states, one after the other, by the layers that they belong to.
std::vector<std::vector<float>> WidthsOf(TestPipeline& pipeline) {
  return pipeline.Tensors(Storage::kStatistics);
}

TEST(FixedWidth, CutsAndUpdatesInTheBackwardChangeNoByte) {
  ExpectCutsChangeNoByte("lenet", "afp", /*other=*/"fp32");
}

// Four micro-batches in flight on three stages, or one after the other: the same widths. The weight's
// two histories agree wherever there is an input-gradient.
TEST(FixedWidth, TheWeightsTwoHistoriesAgree) {
  const ModelSpec model = *MakeModel("lenet");
  auto backend = *MakeBackend("cpu", 1);
  auto pipeline =
      TestPipeline::Make(model, {1, 3}, 4, backend.get(), 3, Checks::kOn, Steps::kApart, "afp");
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  StepContext context;
  context.run_seed = 3;
  context.step_labels = 4;
  context.learning_rate = 0.05;
  std::vector<float> x(static_cast<size_t>(pipeline->stages[0]->program.input.elements()));
  const CounterRandom random(3, RandomPurpose::kTest, 5, 0);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.Normal(i));
  const std::vector<int32_t> labels = {0, 1, 2, 3};
  for (int step = 0; step < 12; ++step) {
    context.step = step;
    ASSERT_TRUE(pipeline->ForwardBackward(x.data(), labels.data(), context).ok());
    context.sequence = context.sequence.next();
    ASSERT_TRUE(pipeline->Update(context).ok());
  }
  int compared = 0;
  for (const std::vector<float>& rows : WidthsOf(*pipeline)) {
    ASSERT_EQ(rows.size(), static_cast<size_t>(kWidthRows * kWidthWords));
    const auto row = [&](int64_t r) {
      return std::vector<float>(rows.begin() + r * kWidthWords,
                                rows.begin() + (r + 1) * kWidthWords);
    };
    EXPECT_EQ(row(0)[4] > 0, true);
    if (row(2)[0] == 0) continue;  // the first layer has no input-gradient
    EXPECT_EQ(row(0), row(2));
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

TEST(FixedWidth, LayersAreNotMadeAgain) {
  ModelSpec model = *MakeModel("lenet");
  model.layers[1].recompute = true;
  const auto program = CompileStage(model, 0, model.layer_count() - 1, 2, **FindRecipe("afp"));
  EXPECT_THAT(std::string(program.status().message()), testing::HasSubstr("leave --recompute out"));
}

TEST(FixedWidth, LeNetLearnsOnBothBackends) { ExpectBothBackendsLearn("lenet", "afp", 12); }

}  // namespace
}  // namespace runnel::fixed_width_test
