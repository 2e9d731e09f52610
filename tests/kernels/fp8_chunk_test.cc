// FP8 with chunk-based sums: its formats, sums and updates, and whole models trained by it.

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/float_grid.h"
#include "partition/zoo/zoo.h"
#include "proto/base/tensor/small_float.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::fp8_chunk_test {
namespace {

// All finite values that are not negative, in ascending order, from exponent field and mantissa.
std::vector<double> ValuesOfFormat(int exponent_bits, int mantissa_bits) {
  std::vector<double> values;
  const int bias = (1 << (exponent_bits - 1)) - 1, mantissas = 1 << mantissa_bits;
  for (int field = 0; field + 1 < 1 << exponent_bits; ++field) {
    for (int mantissa = 0; mantissa < mantissas; ++mantissa) {
      const double part = static_cast<double>(mantissa) / mantissas;
      values.push_back(field == 0 ? std::ldexp(part, 1 - bias)
                                  : std::ldexp(1 + part, field - bias));
    }
  }
  return values;
}

// The nearest of a table; halves to the even index.
double SlowNearest(double x, const std::vector<double>& table) {
  const double magnitude = std::abs(x);
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.end()) return std::copysign(table.back(), x);
  if (above == table.begin()) return std::copysign(0.0, x);
  const auto below = above - 1;
  const double up = *above - magnitude, down = magnitude - *below;
  const bool is_even = (below - table.begin()) % 2 == 0;
  return std::copysign(down < up || (down == up && is_even) ? *below : *above, x);
}

TEST(Fp8Chunk, FormatsEndWhereTheyShould) {
  EXPECT_EQ(FloatGrid(5, 2).largest(), 57344);
  EXPECT_EQ(FloatGrid(5, 2).least_step(), 0x1p-16f);
  EXPECT_EQ(FloatGrid(6, 9).largest(), 0x1.ff8p31f);
  EXPECT_EQ(FloatGrid(6, 9).least_step(), 0x1p-39f);
}

// Against a table, and against the conversions of the number types; small_floats_test.cc has values made
// outside.
TEST(Fp8Chunk, AllCodesAndHalfwayPointsAreThoseOfTheTable) {
  constexpr SmallFloat k16Bits = {.exponent_bits = 6, .mantissa_bits = 9, .saturates = true};
  for (const auto& [exponent_bits, mantissa_bits] : {std::pair(5, 2), std::pair(6, 9)}) {
    const FloatGrid grid(exponent_bits, mantissa_bits);
    const std::vector<double> table = ValuesOfFormat(exponent_bits, mantissa_bits);
    for (size_t i = 0; i < table.size(); ++i) {
      const auto value = static_cast<float>(table[i]);
      const float half =
          i + 1 < table.size() ? static_cast<float>((table[i] + table[i + 1]) / 2) : 2 * value;
      for (const float x :
           {value, std::nextafter(half, 0.0f), half, std::nextafter(half, 2 * half)}) {
        const auto want = static_cast<float>(SlowNearest(x, table));
        ASSERT_EQ(grid.Nearest(x), want) << x;
        ASSERT_EQ(grid.Nearest(-x), -want) << x;
        const float other = exponent_bits == 5 ? ToFloat<kE5M2Format>(FromFloat<kE5M2Format>(x))
                                               : ToFloat<k16Bits>(FromFloat<k16Bits>(x));
        ASSERT_EQ(grid.Nearest(x), other) << x;
      }
    }
    EXPECT_EQ(grid.Nearest(INFINITY), grid.largest());
    EXPECT_EQ(grid.Nearest(-1e38f), -grid.largest());
    EXPECT_TRUE(std::isnan(grid.Nearest(NAN)));
    EXPECT_TRUE(std::signbit(grid.Nearest(-0.0f)));
  }
}

TEST(Fp8Chunk, DrawsDecideByTheShareOfTheWay) {
  const FloatGrid grid(6, 9);
  const std::vector<double> table = ValuesOfFormat(6, 9);
  for (size_t i = 0; i + 1 < table.size(); ++i) {
    const auto value = static_cast<float>(table[i]), next = static_cast<float>(table[i + 1]);
    for (const float u : {0.0f, 0.5f, 1 - 0x1p-20f}) ASSERT_EQ(grid.ByDraw(value, u), value);
    const float quarter = value + (next - value) / 4;
    ASSERT_EQ(grid.ByDraw(quarter, 0.75f), next) << value;
    ASSERT_EQ(grid.ByDraw(-quarter, 0.74f), -value) << value;
  }
  EXPECT_EQ(grid.ByDraw(1e30f, 0.5f), grid.largest());
  EXPECT_TRUE(std::isnan(grid.ByDraw(NAN, 0.5f)));
}

// Sums of 65 products of 8-bit floats near 1, each of which double holds: exact, but for the
// rounding that is meant.
TEST(Fp8Chunk, SumsAreThoseOfExactAdditions) {
  constexpr int64_t kTerms = 65;
  const FloatGrid of_8(5, 2);
  const std::vector<double> of_16 = ValuesOfFormat(6, 9);
  for (const int64_t chunk : {int64_t{1}, int64_t{2}, int64_t{64}, kTerms}) {
    for (uint64_t stream = 1; stream <= 20; ++stream) {
      Tensor x = Normal({1, kTerms}, stream, 1), w = Normal({1, kTerms}, stream, 2);
      for (Tensor* one : {&x, &w})
        for (float& value : absl::MakeSpan(one->data(), kTerms)) value = of_8.Nearest(value);
      double total = 0;
      for (int64_t at = 0; at < kTerms; at += chunk) {
        double partial = 0;
        for (int64_t i = at; i < std::min(at + chunk, kTerms); ++i)
          partial = SlowNearest(partial + static_cast<double>(x.data()[i]) * w.data()[i], of_16);
        total = SlowNearest(total + partial, of_16);
      }
      for (const char* name : kGridBackends) {
        auto backend = *MakeBackend(name, 1);
        Tensor y = Zeros({1, 1});
        ASSERT_TRUE(RunOp(OpCode::kChunkedLinearForward, {.kind = OpKind::kLinear}, {&x, &w}, {&y},
                          {}, 0, 0, backend.get(), {},
                          {.bits = 9, .exponent_bits = 6, .chunk = static_cast<int>(chunk)})
                        .ok());
        ASSERT_EQ(*y.data(), static_cast<float>(total)) << name << ", chunk " << chunk;
      }
    }
  }
}

// What chunks are for: ones that are added to a large sum are lost, ones of their own chunk are not.
TEST(Fp8Chunk, ChunksKeepWhatOneSumLoses) {
  Tensor x = Floats({1, 4096}, std::vector<float>(4096, 1)), w = x;
  const auto sum = [&](int chunk) {
    Tensor y = Zeros({1, 1});
    EXPECT_TRUE(RunOp(OpCode::kChunkedLinearForward, {.kind = OpKind::kLinear}, {&x, &w}, {&y}, {},
                      0, 0, nullptr, {}, {.bits = 9, .exponent_bits = 6, .chunk = chunk})
                    .ok());
    return *y.data();
  };
  EXPECT_EQ(sum(64), 4096);
  EXPECT_EQ(sum(4096), 1024);
}

// Both ends of a model read 16 bits where the sheet says so; all products are sums of chunks.
TEST(Fp8Chunk, EndsOfAModelHaveGridsOfTheirOwn) {
  const ModelSpec model = *MakeModel("lenet");
  const auto program =
      CompileStage(model, 0, model.layer_count() - 1, 2, **FindRecipe("fp8_chunk:32"));
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<int> mantissas;
  for (const Instruction& one : program->part(Part::kForward)) {
    if (one.code == OpCode::kSmallFloat) mantissas.push_back(one.grid.bits);
    if (TraitsOf(one.code).is_product()) {
      EXPECT_EQ(TraitsOf(one.code).numbers, Numbers::kGridFloats);
      EXPECT_EQ(one.grid.chunk, 32);
      EXPECT_EQ(one.grid.bits, 9);
    }
  }
  // Input and weight of each operator; the first one's input is the samples.
  ASSERT_GE(mantissas.size(), 6u);
  EXPECT_EQ(mantissas[0], 9);
  EXPECT_EQ(mantissas[1], 2);
  for (size_t i = 2; i + 2 < mantissas.size(); ++i) EXPECT_EQ(mantissas[i], 2);
  EXPECT_EQ(mantissas[mantissas.size() - 2], 9);
  EXPECT_EQ(mantissas.back(), 9);
}

TEST(Fp8Chunk, CutsAndUpdatesInTheBackwardChangeNoByte) {
  for (uint64_t seed = 0; seed <= 3; ++seed) {
    const ModelSpec model = seed == 0 ? *MakeModel("lenet") : RandomModel(seed);
    if (model.layer_count() < 2) continue;
    Training training = {.model = model, .recipe = "fp8_chunk", .count = 2, .loss_scale = 1024};
    const Trained whole = TrainOnGrids(training);
    training.steps = Steps::kAlone;
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << seed;
    training.steps = Steps::kApart;
    training.cuts = {training.model.layer_count() / 2};
    EXPECT_EQ(TrainOnGrids(training).parameters, whole.parameters) << seed;
    const FloatGrid grid(6, 9);
    for (const std::vector<float>& tensor : whole.parameters)
      for (const float value : tensor) ASSERT_EQ(grid.Nearest(value), value);
    training.recipe = "fp8_chunk:fp32";
    training.cuts.clear();
    if (seed == 0) {
      EXPECT_NE(TrainOnGrids(training).parameters, whole.parameters);
    }
  }
}

TEST(Fp8Chunk, LeNetLearnsOnBothBackends) {
  const ModelSpec model = *MakeModel("lenet");
  for (const char* recipe : {"fp8_chunk", "fp8_chunk:fp32"}) {
    Training training = {
        .model = model, .backend = "ref", .recipe = recipe, .count = 1, .loss_scale = 1024};
    const Trained on_ref = TrainOnGrids(training);
    training.backend = "cpu";
    training.count = 12;
    const Trained on_cpu = TrainOnGrids(training);
    EXPECT_NEAR(on_cpu.losses[0], on_ref.losses[0], 0.02 * on_ref.losses[0]) << recipe;
    EXPECT_LT(on_cpu.losses.back(), 0.8 * on_cpu.losses[0]) << recipe;
  }
}

}  // namespace
}  // namespace runnel::fp8_chunk_test
