// What codecs add to the gradients' noise, beside a slow reference, and with draws of a known law.

#include "worker/stage/dry_run/gradient_comparison.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel::gradient_comparison_test {
namespace {

using Gradients = std::vector<std::vector<float>>;

GradientSums Compare(const Gradients& exact, const Gradients& coded) {
  GradientComparison comparison;
  for (size_t k = 0; k < exact.size(); ++k) {
    comparison.AddExact(exact[k]);
    comparison.AddCoded(coded[k]);
  }
  return comparison.sums();
}

// Element by element, in two passes.
void AddReference(const Gradients& values, double& mean_square, double& deviation) {
  const auto k = static_cast<double>(values.size());
  for (size_t i = 0; i < values[0].size(); ++i) {
    double mean = 0;
    for (const std::vector<float>& one : values) mean += one[i] / k;
    mean_square += mean * mean;
    for (const std::vector<float>& one : values) deviation += (one[i] - mean) * (one[i] - mean);
  }
}

// `count` gradients: mean + deviation * a normal draw, each element by itself.
Gradients Draw(int count, size_t elements, double mean, double deviation, uint64_t stream) {
  Gradients result;
  for (int k = 0; k < count; ++k) {
    const CounterRandom random(5, RandomPurpose::kTest, stream, static_cast<uint64_t>(k));
    for (std::vector<float>& one = result.emplace_back(); one.size() < elements;)
      one.push_back(static_cast<float>(mean + deviation * random.Normal(one.size())));
  }
  return result;
}

Gradients Sum(Gradients a, const Gradients& b) {
  for (size_t k = 0; k < a.size(); ++k) {
    for (size_t i = 0; i < a[k].size(); ++i) a[k][i] += b[k][i];
  }
  return a;
}

TEST(GradientComparison, SumsAreThoseOfTheReference) {
  const Gradients exact = Draw(5, 1000, 0.25, 2, 1);
  const Gradients errors = Draw(5, 1000, -0.125, 0.5, 2);
  const GradientSums sums = Compare(exact, Sum(exact, errors));
  GradientSums expected{5};
  AddReference(exact, expected.mean_square, expected.deviation);
  AddReference(errors, expected.error_mean_square, expected.error_deviation);
  EXPECT_EQ(sums.micro_batches, 5);
  EXPECT_NEAR(sums.mean_square, expected.mean_square, 1e-4 * expected.mean_square);
  EXPECT_NEAR(sums.deviation, expected.deviation, 1e-4 * expected.deviation);
  EXPECT_NEAR(sums.error_mean_square, expected.error_mean_square,
              1e-4 * expected.error_mean_square);
  EXPECT_NEAR(sums.error_deviation, expected.error_deviation, 1e-4 * expected.error_deviation);
}

// Noise of variance 4 on a mean of 0.5; errors of variance 0.04, then with a mean of 0.1.
TEST(GradientComparison, NoiseIsThatOfTheLaw) {
  const Gradients exact = Draw(4, 40000, 0.5, 2, 3);
  const auto noise = [&exact](double bias, int64_t micro_batches_a_step) {
    return NoiseOf(Compare(exact, Sum(exact, Draw(4, 40000, bias, 0.2, 4))), micro_batches_a_step,
                   16);
  };
  EXPECT_NEAR(noise(0, 1).added, 0.01, 0.001);
  EXPECT_NEAR(noise(0, 8).added, 0.01, 0.002) << "it averages out as the noise does";
  EXPECT_NEAR(noise(0.1, 1).added, 0.0125, 0.001);
  EXPECT_NEAR(noise(0.1, 8).added, 0.03, 0.003) << "a bias does not";
  EXPECT_NEAR(noise(0, 1).scale_samples, 16 * 4 / 0.25, 25);
}

// Stages add up to what the whole gradient gives.
TEST(GradientComparison, StagesAddUp) {
  const Gradients exact = Draw(3, 300, 0.5, 2, 5), coded = Sum(exact, Draw(3, 300, 0.1, 0.2, 6));
  const auto part = [](const Gradients& whole, size_t begin, size_t end) {
    Gradients result;
    for (const std::vector<float>& one : whole)
      result.emplace_back(one.begin() + static_cast<ptrdiff_t>(begin),
                          one.begin() + static_cast<ptrdiff_t>(end));
    return result;
  };
  GradientSums sums = Compare(part(exact, 0, 100), part(coded, 0, 100));
  sums += Compare(part(exact, 100, 300), part(coded, 100, 300));
  EXPECT_NEAR(NoiseOf(sums, 2, 8).added, NoiseOf(Compare(exact, coded), 2, 8).added, 1e-6);
}

TEST(GradientComparison, WithoutCodecsNothingIsAdded) {
  const Gradients exact = Draw(4, 100, 0, 1, 7);
  EXPECT_EQ(NoiseOf(Compare(exact, exact), 1, 8).added, 0);
  EXPECT_EQ(NoiseOf(Compare(exact, exact), 1, 8).added, 0);
  Gradients bad = exact;
  bad[2][5] = std::nanf("");
  EXPECT_FALSE(std::isfinite(NoiseOf(Compare(exact, bad), 1, 8).added));
}

}  // namespace
}  // namespace runnel::gradient_comparison_test
