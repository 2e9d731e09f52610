#include "worker/stage/gradient_norm.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel::gradient_norm_test {
namespace {

std::vector<float> Drawn(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
  for (size_t i = 0; i < count; ++i) values[i] = random.Uniform(i) - 0.5f;
  return values;
}

TEST(GradientNorm, SquareSumIsThePlainSumOfSquares) {
  for (const size_t count : {0u, 1u, 7u, 8u, 9u, 15u, 16u, 1003u}) {
    const std::vector<float> values = Drawn(count, count + 1);
    long double expected = 0;
    for (const float value : values) expected += static_cast<long double>(value) * value;
    EXPECT_NEAR(SquareSum(values.data(), static_cast<int64_t>(count)),
                static_cast<double>(expected), 1e-12 * static_cast<double>(expected))
        << count;
  }
}

// Sums of doubles depend on the order: this one's stays.
TEST(GradientNorm, AnyCutAddsInTheSameOrder) {
  std::vector<double> squares;
  for (const float value : Drawn(9, 3)) squares.push_back(std::exp(40.0 * value));
  const double whole = AddSquares(0, squares);
  double ascending = 0;
  for (const double square : squares) ascending += square;
  EXPECT_NE(ascending, whole) << "the draws do not tell the orders apart";
  const auto span = absl::MakeConstSpan(squares);
  for (size_t first = 0; first <= squares.size(); ++first) {
    for (size_t second = first; second <= squares.size(); ++second) {
      double sum = AddSquares(0, span.subspan(second));
      sum = AddSquares(sum, span.subspan(first, second - first));
      EXPECT_EQ(AddSquares(sum, span.first(first)), whole) << first << " " << second;
    }
  }
}

TEST(GradientNorm, TheFactorIsPyTorchs) {
  EXPECT_EQ(ClipFactor(1, 0.25, 1), 1) << "a small gradient stays as it is";
  EXPECT_DOUBLE_EQ(ClipFactor(1, 100, 1), 1 / (10 + 1e-6));
  EXPECT_DOUBLE_EQ(ClipFactor(1, 100.0 * 64 * 64, 64), 1 / (10 + 1e-6)) << "of the scaled loss";
  EXPECT_EQ(ClipFactor(1, std::numeric_limits<double>::infinity(), 1), 1);
  EXPECT_EQ(ClipFactor(1, std::numeric_limits<double>::quiet_NaN(), 1), 1);
}

}  // namespace
}  // namespace runnel::gradient_norm_test
