#include "compress/mbq/mbq_math.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::mbq_math_test {
namespace {

constexpr uint64_t kSeed = 77001;

struct Encoded {
  std::vector<uint8_t> codes;
  MbqSums sums;
};

Encoded Encode(const std::vector<float>& x, const Alphas& alpha, int k) {
  Encoded encoded;
  std::vector<std::byte> planes(k * PlaneBytes(x.size()));
  kScalarCodecKernels.mbq_encode(x.data(), x.size(), MakeSearch(alpha, k), planes.data(),
                                 &encoded.sums);
  encoded.codes.resize(x.size());
  UnpackPlanes(planes.data(), PlaneBytes(x.size()), x.size(), k, encoded.codes.data());
  return encoded;
}

double SquaredError(const std::vector<float>& x, const std::vector<uint8_t>& codes,
                    const Alphas& alpha, int k) {
  double sum = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    const double error = LevelOf(alpha, k, codes[e]) - x[e];
    sum += error * error;
  }
  return sum;
}

TEST(MbqMath, EmaWeights) {
  EXPECT_DOUBLE_EQ(EmaWeight(1), 2.0 / 11.0);
  EXPECT_LT(EmaWeight(79), 0.9);
  EXPECT_DOUBLE_EQ(EmaWeight(80), 0.9);
  EXPECT_DOUBLE_EQ(EmaWeight(1000000), 0.9);
}

TEST(MbqMath, TheTinyCase) {
  const std::vector<float> x = {3, 1, -1, -3};
  const Alphas alpha = GreedyAlphas(x.data(), 4, 2);
  EXPECT_EQ(alpha[0], 2.0f);
  EXPECT_EQ(alpha[1], 1.0f);
  EXPECT_EQ(Encode(x, alpha, 2).codes, (std::vector<uint8_t>{3, 2, 1, 0}));
}

TEST(MbqMath, ThresholdSearchFindsTheNearestLevel) {
  RecordProperty("seed", static_cast<int>(kSeed));
  for (const NamedTensor& tensor : HardTensors(501, kSeed)) {
    for (int k = 2; k <= kMaxMbqBits; ++k) {
      const Alphas alpha = GreedyAlphas(tensor.values.data(), tensor.values.size(), k);
      const Encoded encoded = Encode(tensor.values, alpha, k);
      for (size_t e = 0; e < tensor.values.size(); ++e) {
        const double x = tensor.values[e];
        double best = std::numeric_limits<double>::infinity();
        for (int code = 0; code < (1 << k); ++code) {
          best = std::min(best, std::abs(x - LevelOf(alpha, k, code)));
        }
        const double chosen = std::abs(x - LevelOf(alpha, k, encoded.codes[e]));
        ASSERT_LE(chosen, best * (1 + 1e-12)) << tensor.name << ", k " << k << ", element " << e;
      }
    }
  }
}

TEST(MbqMath, OnAThresholdTheLowerLevelIsTaken) {
  const Alphas alpha = {2.0f, 1.0f};  // levels -3 -1 1 3
  const std::vector<float> x = {-2.0f, std::nextafter(-2.0f, 0.0f), 0.0f, 0x1p-149f,
                                2.0f,  std::nextafter(2.0f, 3.0f)};
  EXPECT_EQ(Encode(x, alpha, 2).codes, (std::vector<uint8_t>{0, 1, 1, 2, 2, 3}));
}

// A midpoint between two floats: the FP32 comparison must still agree with the double one.
TEST(MbqMath, ThresholdsBetweenFloats) {
  for (int j = 1; j < 16; j += 2) {
    const Alphas alpha = {1.0f, 0.5f + static_cast<float>(j) * 0x1p-24f, 0.25f};
    const MbqSearch search = MakeSearch(alpha, 3);
    const double midpoint = (LevelOf(alpha, 3, 6) + LevelOf(alpha, 3, 7)) / 2;
    ASSERT_NE(static_cast<double>(static_cast<float>(midpoint)), midpoint);
    for (float x = 1.499999f; x < 1.500002f; x = std::nextafter(x, 2.0f)) {
      EXPECT_EQ(x > search.tree[7], static_cast<double>(x) > midpoint) << "j " << j << ", x " << x;
    }
  }
}

TEST(MbqMath, EqualLevelsAreOrderedByCode) {
  const MbqSearch search = MakeSearch({1.0f, 1.0f, 1.0f}, 3);
  const int expected[] = {0, 1, 2, 4, 3, 5, 6, 7};  // levels -3, three of -1, three of 1, 3
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(search.code_of_rank[rank], expected[rank]);
  EXPECT_FALSE(search.natural);
}

TEST(MbqMath, LeastSquaresResidualIsOrthogonal) {
  for (const NamedTensor& tensor : HardTensors(1003, kSeed + 1)) {
    for (int k = 2; k <= kMaxMbqBits; ++k) {
      SCOPED_TRACE(absl::StrCat(tensor.name, ", k ", k));
      const size_t n = tensor.values.size();
      const Alphas alpha = GreedyAlphas(tensor.values.data(), n, k);
      const Encoded encoded = Encode(tensor.values, alpha, k);
      std::array<double, kMaxMbqBits> star = {};
      if (!SolveAlphas(encoded.sums, n, k, &star)) continue;
      std::array<double, kMaxMbqBits> products = {};
      double size = 0;
      for (size_t e = 0; e < n; ++e) {
        double residual = tensor.values[e];
        for (int i = 0; i < k; ++i) {
          residual -= (encoded.codes[e] >> (k - 1 - i)) & 1 ? star[i] : -star[i];
        }
        for (int i = 0; i < k; ++i) {
          products[i] += (encoded.codes[e] >> (k - 1 - i)) & 1 ? residual : -residual;
        }
        size += std::abs(tensor.values[e]);
      }
      for (int i = 0; i < k; ++i) EXPECT_LE(std::abs(products[i]), 1e-9 * size);
    }
  }
}

// Encoding and solving in turns never makes the error larger.
TEST(MbqMath, AlternationDoesNotRaiseTheError) {
  for (int k = 2; k <= 4; ++k) {
    const std::vector<float> x = NormalTensor(2000, kSeed + 2);
    Alphas alpha = GreedyAlphas(x.data(), x.size(), k);
    double last = std::numeric_limits<double>::infinity();
    for (int step = 0; step < 10; ++step) {
      const Encoded encoded = Encode(x, alpha, k);
      const double error = SquaredError(x, encoded.codes, alpha, k);
      EXPECT_LE(error, last * (1 + 1e-6)) << "k " << k << ", step " << step;
      last = error;
      std::array<double, kMaxMbqBits> star = {};
      ASSERT_TRUE(SolveAlphas(encoded.sums, x.size(), k, &star));
      ASSERT_TRUE(MixAlphas(alpha, star, k, 0.0, &alpha));
      alpha = Canonical(alpha, k);
    }
  }
}

TEST(MbqMath, SingularIsSeen) {
  const std::vector<float> zeros(11, 0.0f);
  for (int k = 2; k <= kMaxMbqBits; ++k) {
    std::array<double, kMaxMbqBits> star = {};
    EXPECT_FALSE(SolveAlphas(Encode(zeros, {}, k).sums, zeros.size(), k, &star));
  }
}

TEST(MbqMath, MeanErrorIsTheMean) {
  const std::vector<float> x = NormalTensor(777, kSeed + 3);
  const Alphas alpha = {0.9f, -0.3f, 0.45f};
  const Encoded encoded = Encode(x, alpha, 3);
  double mean = 0;
  for (size_t e = 0; e < x.size(); ++e) mean += LevelOf(alpha, 3, encoded.codes[e]) - x[e];
  mean /= static_cast<double>(x.size());
  EXPECT_NEAR(MeanError(alpha, encoded.sums, x.size(), 3), mean, 1e-7);
}

TEST(MbqMath, CanonicalIsSortedAndPositive) {
  const Alphas canonical = Canonical({-0.5f, 2.0f, -3.0f, 0.0f}, 4);
  EXPECT_EQ(canonical, (Alphas{3.0f, 2.0f, 0.5f, 0.0f}));
  EXPECT_FALSE(std::signbit(Canonical({-0.0f, -0.0f}, 2)[1]));
}

TEST(MbqMath, LevelsStayFinite) {
  const float top = std::numeric_limits<float>::max();
  const MbqLevels levels = MakeLevels({top, top, top}, 3, -top);
  for (int code = 0; code < 8; ++code) EXPECT_TRUE(std::isfinite(levels.value[code]));
}

}  // namespace
}  // namespace runnel::mbq_math_test
