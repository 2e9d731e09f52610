// Octo: its grids of three products, and whole models trained by it.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::octo_test {
namespace {

// A draw of 1/2 rounds halves up: all codes, halfway points and their neighbours, at a unit of 1/4.
TEST(Octo, ADrawOfOneHalfRoundsHalfUp) {
  constexpr float kClip = 127.0f / 4;
  for (int half = -2 * 127; half < 2 * 127; ++half) {
    const float at = static_cast<float>(half) / 8;
    for (const float x : {std::nextafter(at, -100.0f), at, std::nextafter(at, 100.0f)}) {
      if (x < -kClip) continue;
      EXPECT_EQ(NoisySymmetricValue(x, 0.5f, kClip), std::floor(4.0 * x + 0.5) / 4) << x;
    }
  }
}

// The mean of many roundings is the value, weights and inputs have draws of their own, evaluation
// rounds to the nearest.
TEST(Octo, TheForwardRoundsWithoutBias) {
  constexpr int64_t kCount = 100'000;
  std::vector<float> x(kCount, 0.37f / 127);
  x[0] = -1;
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    std::vector<std::vector<float>> results;
    for (const auto& [code, draws] :
         {std::pair(OpCode::kSymmetricWeight, 2), std::pair(OpCode::kSymmetricActivation, 1)}) {
      Tensor in = Floats({10, kCount / 10}, x), out = Zeros({10, kCount / 10});
      GridRule grid = {.bits = 8, .draws = draws};
      ASSERT_TRUE(RunOp(code, {}, {&in}, {&out}, {}, 0, 0, backend.get(), {}, grid).ok());
      double sum = 0;
      for (int64_t i = 1; i < kCount; ++i) sum += out.data()[i];
      EXPECT_NEAR(sum / kCount * 127, 0.37, 0.01) << name;
      results.push_back(ValuesOf(out));
      grid.to_nearest = true;
      ASSERT_TRUE(RunOp(code, {}, {&in}, {&out}, {}, 0, 0, backend.get(), {}, grid).ok());
      EXPECT_EQ(out.data()[1], 0) << name;
    }
    EXPECT_NE(results[0], results[1]);
  }
}

// Slow and in double: clipped to 0.95 of both ends, then the nearest of 255 codes.
double SlowError(double x, double least, double largest) {
  const double low = 0.95f * least, high = 0.95f * largest;
  const double unit = std::max(std::abs(low), std::abs(high)) / 127;
  double best = 0;
  for (int code = -127; code <= 127; ++code) {
    const double clipped = std::min(std::max(x, low), high);
    if (std::abs(clipped - code * unit) < std::abs(clipped - best)) best = code * unit;
  }
  return best;
}

TEST(Octo, ErrorsAreClippedAndThenTheNearest) {
  for (const bool is_lopsided : {false, true}) {
    Tensor dy = Normal({4, 250}, 3, is_lopsided ? 1 : 2);
    for (float& x : absl::MakeSpan(dy.data(), 1000)) x = is_lopsided ? std::abs(x) + 0.1f * x : x;
    const auto [least, largest] = std::minmax_element(dy.data(), dy.data() + 1000);
    for (const char* name : kGridBackends) {
      auto backend = *MakeBackend(name, 1);
      Tensor out = Zeros({4, 250});
      ASSERT_TRUE(RunOp(OpCode::kSymmetricError, {}, {&dy}, {&out}, {}, 0, 0, backend.get(), {},
                        {.bits = 8, .is_gradient = true, .clip = 0.95f})
                      .ok());
      for (int64_t i = 0; i < 1000; ++i)
        ASSERT_NEAR(out.data()[i], SlowError(dy.data()[i], *least, *largest), 1e-6) << name;
    }
  }
}

TEST(Octo, ErrorsOfZerosStay) {
  Tensor zeros = Zeros({2, 3}), out = Normal({2, 3}, 1, 1);
  ASSERT_TRUE(RunOp(OpCode::kSymmetricError, {}, {&zeros}, {&out}, {}, 0, 0, nullptr, {},
                    {.bits = 8, .clip = 0.95f})
                  .ok());
  EXPECT_THAT(ValuesOf(out), testing::Each(0.0f));
}

TEST(Octo, CutsAndUpdatesInTheBackwardChangeNoByte) {
  ExpectCutsChangeNoByte("lenet", "octo", /*other=*/"fp32");
}

TEST(Octo, LeNetLearnsOnBothBackends) {
  const ModelSpec model = *MakeModel("lenet");
  const Trained on_ref =
      TrainOnGrids({.model = model, .backend = "ref", .recipe = "octo", .count = 1});
  const Trained on_cpu = TrainOnGrids({.model = model, .recipe = "octo", .count = 12});
  EXPECT_NEAR(on_cpu.losses[0], on_ref.losses[0], 0.02 * on_ref.losses[0]);
  EXPECT_LT(on_cpu.losses.back(), 0.8 * on_cpu.losses[0]);
}

}  // namespace
}  // namespace runnel::octo_test
