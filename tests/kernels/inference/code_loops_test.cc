// Each instruction set's loops of kernels/backends/cpu/codes against the formulas as they stand in
// int8_graph.h, over random and extreme values.

#include "kernels/backends/cpu/codes/code_loops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/winograd.h"
#include "kernels/models/graph/factor.h"
#include "proto/base/random.h"

namespace runnel::inference::code_loops_test {
namespace {

using cpu::CodeAddition;
using cpu::CodeColumns;
using cpu::CodeLoops;
using cpu::SumRows;
using cpu::SupportedCodeLoops;

// 32-bit integers of all magnitudes.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed, RandomPurpose::kTest, 0, 0) {}
  int64_t Below(int64_t limit) { return static_cast<int64_t>(random_.Below(at_++, limit)); }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  int32_t Int32() { return static_cast<int32_t>(Between(-INT32_MAX, INT32_MAX) >> Below(31)); }

 private:
  CounterRandom random_;
  uint64_t at_ = 0;
};

struct Columns {
  explicit Columns(int64_t count, bool with_zeros, Draws& draws) {
    for (int64_t c = 0; c < count; ++c) {
      offsets.push_back(static_cast<int32_t>(draws.Between(-1 << 20, 1 << 20)));
      // Every shift, and factors from far below 2^-31 to those that need a limit.
      factors.push_back(
          {static_cast<int32_t>(draws.Below(int64_t{1} << 31)), static_cast<int32_t>(1 + c % 62)});
      if (c % 9 == 0) factors.back().multiplier = 0;
      multipliers.push_back(factors.back().multiplier);
      shifts.push_back(factors.back().shift);
      const double limit =
          c % 9 == 0 ? 0 : std::ldexp(512.0, factors[c].shift) / factors[c].multiplier + 2;
      limits.push_back(c % 9 != 0 && limit < INT32_MAX ? static_cast<int32_t>(limit) : INT32_MAX);
      if (with_zeros) weight_zeros.push_back(static_cast<int32_t>(draws.Between(-127, 127)));
    }
  }
  CodeColumns Get() const {
    return {.offsets = offsets.data(),
            .multipliers = multipliers.data(),
            .shifts = shifts.data(),
            .limits = limits.data(),
            .weight_zeros = weight_zeros.empty() ? nullptr : weight_zeros.data()};
  }

  std::vector<int32_t> offsets, multipliers, shifts, limits, weight_zeros;
  std::vector<Factor> factors;
};

class CodeLoopsTest : public testing::TestWithParam<const CodeLoops*> {};

TEST_P(CodeLoopsTest, RequantizesAsTheFormula) {
  constexpr int64_t kCount = 150, kRows = 5;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws(seed);
    const Columns columns(kCount, seed % 2 == 0, draws);
    CodeColumns given = columns.Get();
    given.zero = static_cast<int32_t>(seed % 3 == 0 ? 0 : draws.Between(-127, 127));
    given.lowest = seed % 4 == 0 ? given.zero : -127;
    given.highest = seed % 5 == 0 ? std::max(31, given.lowest) : 127;
    std::array<int32_t, kRows> row_sums{};
    std::vector<std::vector<int32_t>> sums(kRows);
    std::vector<std::vector<int8_t>> codes(kRows, std::vector<int8_t>(kCount + 1, 99));
    std::array<const int32_t*, kRows> sum_rows{};
    std::array<int8_t*, kRows> code_rows{};
    const int64_t first = draws.Below(40), count = draws.Between(1, kCount - first);
    for (int r = 0; r < kRows; ++r) {
      row_sums[r] = static_cast<int32_t>(draws.Between(-1 << 20, 1 << 20));
      // What is left for the sum once offset and row sum have been taken.
      for (int64_t i = 0; i < count; ++i) sums[r].push_back(draws.Int32() / 4 * 3);
      sums[r][0] = r % 2 == 0 ? INT32_MAX / 4 * 3 : -(INT32_MAX / 4 * 3);
      sum_rows[r] = sums[r].data();
      code_rows[r] = codes[r].data();
    }
    GetParam()->requantize(given, {.sums = sum_rows.data(),
                                   .row_sums = row_sums.data(),
                                   .codes = code_rows.data(),
                                   .rows = kRows,
                                   .first = first,
                                   .count = count});
    for (int r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t c = first + i;
        int64_t sum = int64_t{sums[r][i]} + columns.offsets[c];
        if (seed % 2 == 0) sum -= int64_t{columns.weight_zeros[c]} * row_sums[r];
        const int8_t expected =
            ClampCode(Multiply(sum, columns.factors[c]) + given.zero, given.lowest, given.highest);
        ASSERT_EQ(codes[r][i], expected) << "seed " << seed << ", column " << c << ", sum " << sum;
      }
      ASSERT_EQ(codes[r][count], 99) << "written behind the end";
    }
  }
}

// Factors as they are in models, where rows may use floats: random sums, and those whose product is
// a half, or next to one, exactly.
TEST_P(CodeLoopsTest, SumsNearAHalfAreRoundedInIntegers) {
  constexpr int64_t kCount = 200;
  int halves = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draws draws(seed);
    std::vector<int32_t> offsets(kCount), multipliers(kCount), shifts(kCount), limits(kCount);
    std::vector<float> scales(kCount);
    std::vector<int32_t> sums(kCount), zeros(kCount);
    const int32_t row_sum = static_cast<int32_t>(draws.Between(-1000, 1000));
    const bool with_zeros = seed % 3 == 0;
    std::vector<int8_t> codes(kCount), expected(kCount);
    const int32_t zero = seed % 2 == 0 ? 0 : static_cast<int32_t>(draws.Between(-127, 127));
    for (int64_t c = 0; c < kCount; ++c) {
      shifts[c] = static_cast<int32_t>(draws.Between(31, 45));
      // Of few bits, so that products are halves; or of all.
      multipliers[c] = static_cast<int32_t>(c % 2 == 0 ? draws.Between(1, 15) << 27
                                                       : draws.Between(1 << 30, INT32_MAX));
      const Factor factor = {multipliers[c], shifts[c]};
      limits[c] = INT32_MAX;
      scales[c] = static_cast<float>(std::ldexp(multipliers[c], -shifts[c]));
      offsets[c] = static_cast<int32_t>(draws.Between(-1000, 1000));
      zeros[c] = static_cast<int32_t>(draws.Between(-127, 127));
      // The sum whose product is next to code + 1/2.
      const double half = static_cast<double>(draws.Between(-300, 300)) + 0.5;
      const double target = half / std::ldexp(multipliers[c], -shifts[c]);
      int64_t sum = std::llround(target) + draws.Between(-1, 1);
      if (std::abs(sum) > INT32_MAX / 2) sum = draws.Between(-100000, 100000);
      halves +=
          RoundHalfAway(sum * factor.multiplier, factor.shift) !=
                  (sum * factor.multiplier + (int64_t{1} << (factor.shift - 1)) - 1) >> factor.shift
              ? 1
              : 0;
      expected[c] = ClampCode(Multiply(sum, factor) + zero, -127, 127);
      sums[c] = static_cast<int32_t>(sum - offsets[c] + (with_zeros ? zeros[c] * row_sum : 0));
    }
    CodeColumns columns{offsets.data(), multipliers.data(), shifts.data(), limits.data()};
    columns.scales = scales.data();
    columns.zero = zero;
    if (with_zeros) columns.weight_zeros = zeros.data();
    const int32_t* sum_row = sums.data();
    int8_t* code_row = codes.data();
    GetParam()->requantize(columns, {&sum_row, &row_sum, &code_row, 1, 0, kCount});
    ASSERT_EQ(codes, expected) << "seed " << seed;
  }
  EXPECT_GT(halves, 1000);
}

// Factors and sums for which one rounding in floats is exact, up to the largest products.
TEST_P(CodeLoopsTest, ColumnsThatRoundOnceGiveTheFormula) {
  constexpr int64_t kCount = 75;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws(seed);
    std::vector<int32_t> offsets(kCount), multipliers(kCount), shifts(kCount), sums(kCount);
    const std::vector<int32_t> limits(kCount, INT32_MAX);
    std::vector<float> scales(kCount);
    std::vector<int8_t> codes(kCount + 1, 99), expected(kCount, 0);
    const int64_t first = draws.Below(20), count = draws.Between(1, kCount - first);
    CodeColumns columns{offsets.data(), multipliers.data(), shifts.data(), limits.data()};
    columns.scales = scales.data();
    columns.rounds_once = true;
    columns.zero = static_cast<int32_t>(seed % 3 == 0 ? 0 : draws.Between(-127, 127));
    columns.lowest = seed % 4 == 0 ? columns.zero : -127;
    columns.highest = seed % 5 == 0 ? std::max(31, columns.lowest) : 127;
    for (int64_t c = first; c < first + count; ++c) {
      const Factor factor = FloatFactorOf(
          std::ldexp(1 + draws.Below(1000), -static_cast<int>(draws.Between(10, 24))));
      multipliers[c] = factor.multiplier;
      shifts[c] = factor.shift;
      scales[c] = static_cast<float>(std::ldexp(factor.multiplier, -factor.shift));
      const double most = std::min(static_cast<double>(1 << 24), 32500.0 / scales[c]) - 1;
      int64_t sum = draws.Between(-static_cast<int64_t>(most), static_cast<int64_t>(most));
      if (c % 2 == 0) sum = std::llround(static_cast<double>(draws.Between(-140, 140)) / scales[c]);
      sum = std::clamp(sum, -static_cast<int64_t>(most), static_cast<int64_t>(most));
      const int64_t half = int64_t{1} << (factor.shift - 1);
      if (std::abs(sum * factor.multiplier) % (2 * half) == half) sum = 0;
      expected[c - first] =
          ClampCode(Multiply(sum, factor) + columns.zero, columns.lowest, columns.highest);
      offsets[c] = static_cast<int32_t>(draws.Between(-1000, 1000));
      sums[c - first] = static_cast<int32_t>(sum - offsets[c]);
    }
    const int32_t* sum_row = sums.data();
    int8_t* code_row = codes.data();
    GetParam()->requantize(columns, {&sum_row, nullptr, &code_row, 1, first, count});
    EXPECT_EQ(codes[count], 99) << "written behind the end";
    codes.resize(count);
    expected.resize(count);
    ASSERT_EQ(codes, expected) << "seed " << seed;
  }
}

TEST_P(CodeLoopsTest, RoundsHalvesAwayFromZero) {
  const int32_t offsets = 0, multipliers = 1 << 30, shifts = 31, limits = INT32_MAX;  // 1/2
  const CodeColumns columns{&offsets, &multipliers, &shifts, &limits};
  for (int32_t sum = -254; sum <= 254; ++sum) {
    const int32_t* sums = &sum;
    int8_t code = 0, *codes = &code;
    GetParam()->requantize(columns, {&sums, nullptr, &codes, 1, 0, 1});
    EXPECT_EQ(code, sum < 0 ? -((1 - sum) / 2) : (sum + 1) / 2) << sum;
  }
}

TEST_P(CodeLoopsTest, AddsAsTheFormula) {
  constexpr int64_t kCount = 131;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws(seed);
    CodeAddition p;
    p.zero_a = static_cast<int32_t>(draws.Between(-127, 127));
    p.zero_b = seed % 2 == 0 ? 0 : static_cast<int32_t>(draws.Between(-127, 127));
    p.factor_a = static_cast<int32_t>(draws.Below(1 << 22));
    p.factor_b = static_cast<int32_t>(draws.Below(1 << 22));
    p.shift = static_cast<int32_t>(draws.Between(1, 27));
    p.zero = static_cast<int32_t>(draws.Between(-127, 127));
    if (seed % 3 == 0) p.lowest = p.zero;
    std::vector<int8_t> a, b, y(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      a.push_back(static_cast<int8_t>(draws.Between(-127, 127)));
      b.push_back(static_cast<int8_t>(draws.Between(-127, 127)));
    }
    GetParam()->add(p, a.data(), b.data(), kCount, y.data());
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t sum =
          int64_t{a[i] - p.zero_a} * p.factor_a + int64_t{b[i] - p.zero_b} * p.factor_b;
      ASSERT_EQ(y[i], ClampCode(RoundHalfAway(sum, p.shift) + p.zero, p.lowest, p.highest));
    }
  }
}

TEST_P(CodeLoopsTest, EncodesWithHalvesAwayFromZero) {
  std::vector<float> x;
  for (int i = -300; i <= 300; ++i) x.push_back(static_cast<float>(i) / 4);
  x.insert(x.end(), {1e30f, -1e30f, std::numeric_limits<float>::infinity()});
  std::vector<int8_t> y(x.size());
  for (int32_t zero : {0, -3}) {
    GetParam()->encode(x.data(), static_cast<int64_t>(x.size()), 2, zero, 127, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double real = std::min(std::max(double{x[i]} * 2, -1e6), 1e6);
      EXPECT_EQ(y[i], ClampCode(std::llround(real) + zero, -127, 127)) << x[i];
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  GetParam()->encode(&nan, 1, 2, 0, 127, y.data());
  EXPECT_EQ(y[0], -127);
}

TEST_P(CodeLoopsTest, WinogradsTransformsAreThePlainOnes) {
  for (int64_t channels : {1, 7, 16, 64, 77, 200}) {
    Draws draws(static_cast<uint64_t>(channels));
    std::vector<int8_t> pixels;
    for (int64_t i = 0; i < 16 * channels; ++i) {
      pixels.push_back(static_cast<int8_t>(i % 5 == 0 ? (draws.Below(2) == 0 ? -31 : 31)
                                                      : draws.Between(-31, 31)));
    }
    std::array<const int8_t*, 16> d{};
    for (int p = 0; p < 16; ++p) d[p] = &pixels[p * channels];
    std::vector<int8_t> v(16 * channels), expected(16 * channels);
    GetParam()->winograd_input(d.data(), channels, v.data(), channels);
    WinogradInput(d.data(), channels, expected.data(), channels);
    EXPECT_EQ(v, expected) << channels;
    std::vector<int32_t> m, y(4 * channels);
    for (int64_t i = 0; i < 16 * channels; ++i) m.push_back(draws.Int32() / 16);
    std::array<int32_t*, 4> rows{};
    for (int k = 0; k < 4; ++k) rows[k] = &y[k * channels];
    GetParam()->winograd_output(m.data(), channels, channels, rows.data());
    for (int64_t c = 0; c < channels; ++c) {
      int32_t four[4];
      WinogradOutput(&m[c], channels, four);
      for (int k = 0; k < 4; ++k) EXPECT_EQ(y[k * channels + c], four[k]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, CodeLoopsTest, testing::ValuesIn(SupportedCodeLoops()),
                         [](const auto& row) { return std::string(row.param->name); });

}  // namespace
}  // namespace runnel::inference::code_loops_test
