// MLS: its number formats, scales and groups, and whole models trained by it.

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/multi_level.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/random_model.h"

namespace runnel::mls_test {
namespace {

// All values of a format, from codes: exponent field, mantissa field.
std::vector<double> ValuesOfFormat(int exponent_bits, int mantissa_bits) {
  std::vector<double> values;
  const int normals = (1 << exponent_bits) - 1, mantissas = 1 << mantissa_bits;
  for (int field = 0; field <= normals; ++field) {
    for (int mantissa = 0; mantissa < mantissas; ++mantissa) {
      const double part = static_cast<double>(mantissa) / mantissas;
      // Field 0 has no implicit one, and the exponent of field 1.
      values.push_back(field == 0 ? part * std::pow(2.0, -normals)
                                  : (1 + part) * std::pow(2.0, field - 1 - normals));
    }
  }
  return values;
}

TEST(Mls, ATableOfTheSmallestFormat) {
  EXPECT_THAT(ValuesOfFormat(2, 1),
              testing::ElementsAre(0, 0.0625, 0.125, 0.1875, 0.25, 0.375, 0.5, 0.75));
}

TEST(Mls, AllCodesAndHalfwayPointsAreThoseOfTheTable) {
  for (int exponent_bits = 1; exponent_bits <= 4; ++exponent_bits) {
    for (int mantissa_bits = 1; mantissa_bits <= 7; ++mantissa_bits) {
      SCOPED_TRACE(testing::Message() << "mls:" << exponent_bits << "," << mantissa_bits);
      const MultiLevelFormat format = {exponent_bits, mantissa_bits};
      const std::vector<double> table = ValuesOfFormat(exponent_bits, mantissa_bits);
      EXPECT_EQ(format.largest(), table.back());
      EXPECT_EQ(MultiLevelValue(1, 0.5f, format), table.back());
      for (size_t i = 0; i < table.size(); ++i) {
        const auto value = static_cast<float>(table[i]);
        for (const float u : {0.0f, 0.5f, 1 - 0x1p-20f})
          ASSERT_EQ(MultiLevelValue(value, u, format), value) << u;
        if (i + 1 == table.size()) break;
        const auto next = static_cast<float>(table[i + 1]), half = (value + next) / 2;
        ASSERT_EQ(MultiLevelValue(half, 0.5f, format), next);
        ASSERT_EQ(MultiLevelValue(std::nextafter(half, 0.0f), 0.5f, format), value);
        // A quarter of the way: up for the draws of a quarter.
        const float quarter = value + (next - value) / 4;
        ASSERT_EQ(MultiLevelValue(quarter, 0.75f, format), next);
        ASSERT_EQ(MultiLevelValue(quarter, 0.74f, format), value);
      }
    }
  }
}

TEST(Mls, ScalesOfGroupsAreTheNextOfTheirGrid) {
  EXPECT_EQ(GroupScale(0), 0);
  for (int e = 0; e < 60; ++e) {
    const float power = std::ldexp(1.0f, -e);
    EXPECT_EQ(GroupScale(power), power);
    if (e == 0) continue;
    EXPECT_EQ(GroupScale(1.25f * power), 1.5f * power);
    EXPECT_EQ(GroupScale(1.5f * power), 1.5f * power);
    EXPECT_EQ(GroupScale(std::nextafter(1.5f * power, 2.0f)), 2 * power);
    EXPECT_EQ(GroupScale(std::nextafter(power, 2.0f)), 1.5f * power);
  }
}

// Of a (2, 2, 2) tensor: the groups are (sample, channel); T = 4.
TEST(Mls, EachGroupHasItsScale) {
  const std::vector<float> x = {4, -1, 1, 0.25f, 0, 0, 0.5f, -0.375f};
  GridRule grid = {.bits = 1, .exponent_bits = 2, .to_nearest = true};
  OpSpec conv = {.kind = OpKind::kConv};
  conv.kernel = {2, 1};
  for (const char* name : kGridBackends) {
    SCOPED_TRACE(name);
    auto backend = *MakeBackend(name, 1);
    // 1 of a group becomes 0.75, the largest value.
    const auto want = testing::ElementsAre(3, -1, 0.75f, 0.25f, 0, 0, 0.375f, -0.375f);
    Tensor in = Floats({2, 2, 2}, x), out = Zeros({2, 2, 2});
    ASSERT_TRUE(
        RunOp(OpCode::kMultiLevelActivation, conv, {&in}, {&out}, {}, 0, 0, backend.get(), {}, grid)
            .ok());
    EXPECT_THAT(ValuesOf(out), want);
    Tensor w = Floats({2, 4}, x), v = Zeros({2, 4});
    ASSERT_TRUE(
        RunOp(OpCode::kMultiLevelWeight, conv, {&w}, {&v}, {}, 0, 0, backend.get(), {}, grid).ok());
    EXPECT_THAT(ValuesOf(v), want);
  }
}

// The mean of many roundings is the value; weights, activations and errors have draws of their own.
TEST(Mls, RoundsWithoutBias) {
  constexpr int64_t kCount = 50'000;
  std::vector<float> x(kCount, 0.29f);
  x[0] = 1;
  for (const char* name : kGridBackends) {
    auto backend = *MakeBackend(name, 1);
    std::vector<std::vector<float>> results;
    for (const OpCode code :
         {OpCode::kMultiLevelWeight, OpCode::kMultiLevelActivation, OpCode::kMultiLevelError}) {
      Tensor in = Floats({1, kCount}, x), out = Zeros({1, kCount});
      const GridRule grid = {
          .bits = 1, .is_gradient = code == OpCode::kMultiLevelError, .exponent_bits = 2};
      OpSpec linear = {.kind = OpKind::kLinear};
      ASSERT_TRUE(RunOp(code, linear, {&in}, {&out}, {}, 0, 0, backend.get(), {}, grid).ok());
      double sum = 0;
      for (int64_t i = 1; i < kCount; ++i) sum += out.data()[i];
      EXPECT_NEAR(sum / kCount, 0.29, 0.002) << name;
      results.push_back(ValuesOf(out));
    }
    EXPECT_NE(results[0], results[1]);
    EXPECT_NE(results[1], results[2]);
  }
}

TEST(Mls, CutsAndUpdatesInTheBackwardChangeNoByte) {
  ExpectCutsChangeNoByte("lenet", "mls:2,1", /*other=*/"fp32");
}

TEST(Mls, LeNetLearnsOnBothBackends) { ExpectBothBackendsLearn("lenet", "mls:2,4", 12); }

}  // namespace
}  // namespace runnel::mls_test
