// Unified INT8: its grids, the search for the bound, and whole models trained by it.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::ui8_test {
namespace {

// Slow and in double, with another rule for halves than the code's: by the two neighbours.
double SlowValue(double x, double clip) {
  const double unit = clip / 127, code = std::min(std::max(x, -clip), clip) / unit;
  const double below = std::floor(code), rest = code - below;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
  return (below + (up ? 1 : 0)) * unit;
}

double SlowDeviation(const std::vector<float>& g, double clip) {
  double product = 0, squares = 0, grid_squares = 0;
  for (const double x : g) {
    const double y = SlowValue(x, clip);
    product += x * y;
    squares += x * x;
    grid_squares += y * y;
  }
  return 1 - product / std::sqrt(squares * grid_squares);
}

// A unit of 1/4: codes, halfway points and their neighbours are floats.
TEST(Ui8, AllCodesAndHalfwayPointsAreThoseOfASlowReference) {
  constexpr float kClip = 127.0f / 4;
  std::vector<float> x;
  for (int half = -2 * 130; half <= 2 * 130; ++half) {
    const float at = static_cast<float>(half) / 8;
    for (const float value : {std::nextafter(at, -100.0f), at, std::nextafter(at, 100.0f)})
      if (value >= -kClip && value <= kClip) x.push_back(value);
  }
  const auto count = static_cast<int64_t>(x.size());
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor w = Floats({1, count}, x), v = Zeros({1, count});
    ASSERT_TRUE(RunOp(OpCode::kSymmetricWeight, {}, {&w}, {&v}, {}, 0, 0, backend.get()).ok());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(v.data()[i], static_cast<float>(SlowValue(x[i], kClip))) << name << ", " << x[i];
  }
}

// Of weights: (channels, taps, in) of values (channels, in, taps).
TEST(Ui8, CodesAreThoseOfTheValues) {
  constexpr int64_t kCount = 6 * 5 * 9;
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    for (const int draws : {0, 2}) {
      const GridRule grid = {.bits = 8, .draws = draws};
      Tensor w = Normal({6, 5, 3, 3}, 1, 1), v = Zeros({6, 45});
      Tensor codes = Zeros({6, 45}, DType::kInt8), units = Zeros({3});
      ASSERT_TRUE(
          RunOp(OpCode::kSymmetricWeight, {}, {&w}, {&v}, {}, 0, 0, backend.get(), {}, grid).ok());
      ASSERT_TRUE(RunOp(OpCode::kSymmetricWeightCodes, {}, {&w}, {&codes, &units}, {}, 0, 0,
                        backend.get(), {}, grid)
                      .ok());
      EXPECT_EQ(units.data()[0], 8);
      EXPECT_EQ(units.data()[2], -128 * units.data()[1]);
      for (int64_t i = 0; i < kCount; ++i) {
        const int64_t row = i / 45, in = i % 45 / 9, tap = i % 9;
        ASSERT_EQ(
            static_cast<float>(codes.data<int8_t>()[row * 45 + tap * 5 + in]) * units.data()[1],
            v.data()[i])
            << name << ", draws " << draws << ", " << i;
      }
    }
  }
}

// A border of next to nothing in front of what counts, in planes of these widths.
TEST(Ui8, TheSearchSeesAllColumnsAndRows) {
  for (const int64_t width : {7, 8, 14, 28, 32}) {
    const int64_t plane = width * width, planes = (int64_t{1} << 18) / plane / 16 * 16;
    std::vector<float> g;
    Tensor normal = Normal({planes * plane}, 1, static_cast<uint64_t>(width));
    for (int64_t i = 0; i < planes * plane; ++i) {
      const bool is_border = i % width == 0 || i % plane < width;
      g.push_back(normal.data()[i] * (is_border ? 1e-3f : 1.0f));
    }
    const ClipChoice choice = ChooseClip(g.data(), static_cast<int64_t>(g.size()));
    EXPECT_LT(SlowDeviation(g, choice.clip), 3e-4) << width;
  }
}

// The draw nearest to 1 takes no code beyond the bound, whatever the quotient's rounding.
TEST(Ui8, NoCodeLiesBeyondTheBound) {
  for (float clip = 1; clip < 2; clip += 0x1p-11f) {
    for (const float u : {0.0f, 1 - 0x1p-20f}) {
      EXPECT_LE(NoisySymmetricValue(clip, u, clip), 127 * SymmetricUnit(clip)) << clip;
      EXPECT_GE(NoisySymmetricValue(-clip, u, clip), -127 * SymmetricUnit(clip)) << clip;
    }
  }
}

TEST(Ui8, ZerosAndNansStay) {
  Tensor w = Floats({1, 2}, {0, 0}), v = Normal({1, 2}, 1, 1);
  ASSERT_TRUE(RunOp(OpCode::kSymmetricWeight, {}, {&w}, {&v}).ok());
  EXPECT_THAT(ValuesOf(v), testing::Each(0.0f));
  EXPECT_TRUE(std::isnan(SymmetricValue(NAN, 1)));
  EXPECT_TRUE(std::isnan(NoisySymmetricValue(NAN, 0.5f, 1)));
  EXPECT_EQ(NoisySymmetricValue(1, 1 - 0x1p-20f, 1), 1);
}

TEST(Ui8, EvaluationHasTheMeanBoundOfTraining) {
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor range = Zeros({2});
    range.storage = Storage::kStatistics;
    for (const std::vector<float>& x : {std::vector<float>{0, -4}, {8, 2}}) {
      Tensor in = Floats({1, 2}, x), out = Zeros({1, 2});
      ASSERT_TRUE(
          RunOp(OpCode::kSymmetricActivation, {}, {&in}, {&out, &range}, {}, 0, 0, backend.get())
              .ok());
    }
    Tensor in = Floats({1, 2}, {-100, 100}), out = Zeros({1, 2});
    ASSERT_TRUE(
        RunOp(OpCode::kSymmetricActivationEval, {}, {&in, &range}, {&out}, {}, 0, 0, backend.get())
            .ok());
    EXPECT_NEAR(out.data()[0], -4.4, 1e-6) << name;
    EXPECT_NEAR(out.data()[1], 4.4, 1e-6) << name;
  }
}

TEST(Ui8, DeviationsAndTheirStepsAreTheSheetsFigures) {
  const float even[] = {1, -1, 1, -1};
  EXPECT_EQ(DeviationOf(even, 4, 1), 0);
  EXPECT_EQ(CounterDeviation(0), 1);
  EXPECT_NEAR(CounterDeviation(0.05f), 0.3679, 1e-4);
  EXPECT_EQ(CounterDeviation(1), 0.1f);
}

// Most values small and a few large: what a clip is for.
std::vector<float> HeavyTails(uint64_t seed, int64_t count) {
  Tensor normal = Normal({count}, seed, 3);
  std::vector<float> g = ValuesOf(normal);
  for (float& x : g) x = x * x * x * x * x;
  return g;
}

TEST(Ui8, TheBoundIsAsGoodAsAScansBest) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const int64_t count = seed < 5 ? 300 : 4000;
    const std::vector<float> g = HeavyTails(seed, count);
    const float largest = LargestMagnitude(g.data(), count);
    const ClipChoice choice = ChooseClip(g.data(), count);
    double best = 1;
    for (int i = 50; i <= 1000; ++i)
      best = std::min(best, SlowDeviation(g, static_cast<double>(largest) * i / 1000));
    EXPECT_LE(choice.deviation, best + 1e-4) << seed;
    EXPECT_NEAR(choice.deviation, SlowDeviation(g, choice.clip), 1e-6) << seed;
  }
}

// On every backend the same values, whose mean is what was rounded.
TEST(Ui8, ErrorsAreRoundedWithoutBias) {
  constexpr int64_t kCount = 100'000;
  std::vector<float> x(kCount, 0.37f / 127);
  for (int64_t i = 0; i < kCount; i += 2) x[i] = i % 4 == 0 ? 1 : -1;
  std::vector<float> first;
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor dy = Floats({10, kCount / 10}, x), out = Zeros({10, kCount / 10}), d = Zeros({1});
    ASSERT_TRUE(RunOp(OpCode::kClippedError, {}, {&dy}, {&out, &d}, {}, 0, 0, backend.get(), {},
                      {.bits = 8, .is_gradient = true})
                    .ok());
    double sum = 0;
    for (int64_t i = 1; i < kCount; i += 2) sum += out.data()[i];
    EXPECT_NEAR(sum / (kCount / 2.0) * 127, 0.37, 0.01) << name;
    if (first.empty()) first = ValuesOf(out);
    EXPECT_EQ(ValuesOf(out), first) << name;
  }
}

TEST(Ui8, WeightGradientsAreScaledByTheDeviation) {
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    Tensor dv = Floats({3}, {1, -2, 4}), d = Floats({1}, {1}), dw = Floats({3}, {8, 8, 8});
    StepContext context;
    context.accumulate = true;
    ASSERT_TRUE(
        RunOp(OpCode::kCounterDeviation, {}, {&dv, &d}, {&dw}, context, 0, 0, backend.get()).ok());
    EXPECT_THAT(ValuesOf(dw), testing::ElementsAre(8 + 0.1f, 8 - 0.2f, 8 + 0.4f)) << name;
  }
}

TEST(Ui8, CutsAndUpdatesInTheBackwardChangeNoByte) {
  ExpectCutsChangeNoByte("lenet", "ui8", /*other=*/"fp32");
}

TEST(Ui8, LeNetLearnsOnBothBackends) { ExpectBothBackendsLearn("lenet", "ui8", 12); }

}  // namespace
}  // namespace runnel::ui8_test
