// DoReFa: the golden values, and whole models trained by it, cut and uncut, on `ref`, `cpu` and,
// where a driver is, `opencl`.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/arithmetic/fake_quantize.h"
#include "kernels/ir/recipe.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::dorefa_test {
namespace {

using nlohmann::json;

std::vector<json> GoldenCases(const char* kind) {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/dorefa.json");
  std::vector<json> cases;
  json golden = json::parse(file);
  for (json& c : golden["dorefa"]) {
    if (c["kind"] == kind) cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<std::string> Backends() {
  std::vector<std::string> names = {"ref", "cpu", "cpu:portable"};
  const std::vector<std::string> built = BackendNames();
  if (std::find(built.begin(), built.end(), "opencl") != built.end()) names.push_back("opencl");
  return names;
}

// A float of a value that was computed in double: within two roundings.
void ExpectValue(double got, double want) {
  EXPECT_NEAR(got, want, 0x1p-23 * std::abs(want)) << "golden " << want;
}

// Of one instruction, on each backend.
void ExpectGolden(const json& c, OpCode code, const char* operand) {
  const std::vector<float> x = c[operand];
  const int bits = c["k"];
  const GridRule grid = {.bits = bits,
                         .weights = bits == 1 ? WeightGrid::kSignMean : WeightGrid::kTanhMax};
  const auto size = static_cast<int64_t>(x.size());
  for (const std::string& name : Backends()) {
    SCOPED_TRACE(absl::StrCat(name, ", k = ", bits));
    auto backend = *MakeBackend(name, 1);
    Tensor in = Floats({1, size}, x), out = Zeros({1, size});
    ASSERT_TRUE(RunOp(code, {}, {&in}, {&out}, {}, 0, 0, backend.get(), {}, grid).ok());
    for (int64_t i = 0; i < size; ++i) {
      const double want = c["value"][i], got = out.data()[i];
      ExpectValue(got, want);
      const int steps = GridSteps(bits);
      const double unit = code == OpCode::kFakeQuantizeActivation ? got
                          : bits == 1                             ? (got > 0 ? 1 : 0)
                                                                  : (got + 1) / 2;
      EXPECT_EQ(std::lround(unit * steps), c["code"][i].get<int64_t>()) << i;
    }
  }
}

TEST(Dorefa, WeightsAreTheGoldenOnes) {
  const auto cases = GoldenCases("W");
  ASSERT_EQ(cases.size(), 5u);
  for (const json& c : cases) ExpectGolden(c, OpCode::kFakeQuantizeWeight, "w");
}

TEST(Dorefa, ActivationsAreTheGoldenOnes) {
  const auto cases = GoldenCases("A");
  ASSERT_EQ(cases.size(), 4u);
  for (const json& c : cases) ExpectGolden(c, OpCode::kFakeQuantizeActivation, "a");
}

// The draws are given there, so the arithmetic of single values is compared; that every backend
// draws and computes so is the conformance suite's.
TEST(Dorefa, ErrorsAreTheGoldenOnes) {
  const auto cases = GoldenCases("G");
  ASSERT_EQ(cases.size(), 4u);
  for (const json& c : cases) {
    const std::vector<float> g = c["g"], uniform = c["uniform"];
    for (size_t n = 0; n < 4; ++n) {
      float largest = 0;
      for (size_t i = 0; i < 8; ++i) largest = std::max(largest, std::abs(g[n * 8 + i]));
      const ErrorGrid grid = ErrorGridOf(largest, c["k"]);
      EXPECT_EQ(grid.used, !c["code"][n][0].is_null());
      for (size_t i = 0; i < 8 && grid.used; ++i) {
        const auto draw = static_cast<uint32_t>(uniform[n * 8 + i] * 0x1p20);
        const int code = ErrorCode(g[n * 8 + i], grid, draw);
        EXPECT_EQ(code, c["code"][n][i].get<int>());
        // (c / N - 1/2) * 2 m was rounded near the middle of the grid.
        EXPECT_NEAR(ErrorOfCode(code, grid), c["value"][n][i].get<double>(), 0x1p-23 * largest);
      }
    }
  }
}

TEST(Dorefa, EachOfItsParametersIsChecked) {
  for (const char* name : {"dorefa:4,4,8", "dorefa:1,32,32", "dorefa:32,32,32", "dorefa:8,1,2"}) {
    const auto recipe = FindRecipe(name);
    ASSERT_TRUE(recipe.ok()) << recipe.status();
    EXPECT_TRUE(CheckRecipe(**recipe).ok()) << CheckRecipe(**recipe);
    EXPECT_EQ((*recipe)->name, name);
  }
  for (const char* name : {"dorefa", "dorefa:", "dorefa:4,4", "dorefa:4,4,8,8", "dorefa:0,4,8",
                           "dorefa:9,4,8", "dorefa:4,16,8", "dorefa:4,4,33", "dorefa:04,4,8"}) {
    EXPECT_THAT(std::string(FindRecipe(name).status().message()), testing::HasSubstr("dorefa"))
        << name;
  }
}

// Two steps of two micro-batches with the bits of the recipe's name.
Training Two(const ModelSpec& model, const char* backend = "cpu") {
  return {.model = model,
          .backend = backend,
          .recipe = "dorefa:4,4,8",
          .levels = {{}},
          .count = 2,
          .micro_batches = 2};
}

TEST(Dorefa, CutsAndUpdatesInTheBackwardChangeNoByte) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const ModelSpec model = RandomModel(seed);
    if (model.layer_count() < 2) continue;
    Training training = Two(model);
    const Trained whole = TrainOnGrids(training);
    training.cuts = {model.layer_count() / 2};
    EXPECT_EQ(whole.parameters, TrainOnGrids(training).parameters) << seed;
    training.cuts.clear();
    training.micro_batches = 1;
    const Trained apart = TrainOnGrids(training);
    training.steps = Steps::kAlone;
    EXPECT_EQ(apart.parameters, TrainOnGrids(training).parameters) << seed;
  }
}

TEST(Dorefa, FullPrecisionIsFp32) {
  Training training = Two(*MakeModel("lenet"));
  training.recipe = "dorefa:32,32,32";
  const Trained full = TrainOnGrids(training);
  training.recipe = "fp32";
  EXPECT_EQ(full.parameters, TrainOnGrids(training).parameters);
}

// Each backend but ref takes `steps` steps and ends below `share` of its first loss. A code may
// fall to the other side of a tie after the first products, which two backends round differently:
// the first loss is within `tolerance` of ref's.
void ExpectEachTrains(const Training& ref, const Trained& on_ref, int steps, double tolerance,
                      double share) {
  for (const std::string& name : Backends()) {
    if (name == "ref") continue;
    SCOPED_TRACE(name);
    Training fast = ref;
    fast.backend = name;
    fast.count = steps;
    const Trained on_fast = TrainOnGrids(fast);
    EXPECT_NEAR(on_fast.losses[0], on_ref.losses[0], tolerance * on_ref.losses[0]);
    EXPECT_LT(on_fast.losses.back(), share * on_fast.losses[0]);
  }
}

TEST(Dorefa, EveryBackendTrainsLeNet) {
  Training ref = Two(*MakeModel("lenet"), "ref");
  ref.count = 4;
  ref.checks = Checks::kOff;
  const Trained on_ref = TrainOnGrids(ref);
  EXPECT_LT(on_ref.losses.back(), on_ref.losses[0]);
  ExpectEachTrains(ref, on_ref, 12, 0.02, 0.8);
}

// |a - b|, over all tensors.
double Distance(const Trained& a, const Trained& b) {
  double squares = 0;
  for (size_t t = 0; t < a.parameters.size(); ++t) {
    for (size_t i = 0; i < a.parameters[t].size(); ++i) {
      squares += std::pow(a.parameters[t][i] - b.parameters[t][i], 2);
    }
  }
  return std::sqrt(squares);
}

// The first step, of two micro-batches' gradients: a code that falls to the other side of a tie
// moves it a little.
TEST(Dorefa, EveryBackendTakesTheStepOfRef) {
  for (const char* recipe : {"dorefa:4,4,8", "dorefa:1,32,6"}) {
    Training ref = Two(*MakeModel("lenet"), "ref");
    ref.recipe = recipe;
    ref.count = 1;
    ref.checks = Checks::kOff;
    Training start = ref;
    start.count = 0;
    const Trained on_ref = TrainOnGrids(ref);
    const double step = Distance(on_ref, TrainOnGrids(start));
    for (const std::string& name : Backends()) {
      Training fast = ref;
      fast.backend = name;
      EXPECT_LT(Distance(TrainOnGrids(fast), on_ref), 0.15 * step) << name << ", " << recipe;
    }
  }
}

TEST(Dorefa, EveryBackendTrainsMobileNetV2) {
  Training ref = Two(*MakeModel("mobilenet_v2"), "ref");
  ref.count = ref.micro_batches = 1;
  ref.checks = Checks::kOff;
  ExpectEachTrains(ref, TrainOnGrids(ref), 4, 0.2, 1);
}

}  // namespace
}  // namespace runnel::dorefa_test
