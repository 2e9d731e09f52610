#include "predictor/fit/layer_times.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/fit/cholesky.h"

namespace runnel::layer_times_test {
namespace {

ModelWork MobileNet() { return *ModelWork::Create(*MakeModel("mobilenet_v2"), 16); }

LayerPrior Broad(const ModelWork& work, double deviation) {
  const size_t size = static_cast<size_t>(work.layers()) + kDeviceCosts;
  LayerPrior prior{std::vector<double>(size, std::log(1e-3)), std::vector<double>(size * size, 0)};
  prior.mean[size - 2] = std::log(1e-9);
  prior.mean[size - 1] = std::log(1e-10);
  for (size_t i = 0; i < size; ++i) prior.covariance[i * size + i] = deviation * deviation;
  return prior;
}

TEST(Cholesky, SolvesAndInverts) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal(0, 1);
  constexpr size_t kSize = 7;
  std::vector<double> root(kSize * kSize), matrix(kSize * kSize, 0);
  for (double& value : root) value = normal(random);
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      for (size_t k = 0; k < kSize; ++k)
        matrix[i * kSize + j] += root[i * kSize + k] * root[j * kSize + k];
    }
    matrix[i * kSize + i] += 0.5;
  }
  const std::optional<Cholesky> factor = Cholesky::Factor(matrix, kSize);
  ASSERT_TRUE(factor.has_value());
  const std::vector<double> inverse = factor->Inverse();
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      double product = 0;
      for (size_t k = 0; k < kSize; ++k) product += matrix[i * kSize + k] * inverse[k * kSize + j];
      EXPECT_NEAR(product, i == j ? 1 : 0, 1e-9);
    }
  }
  matrix[3 * kSize + 3] = -1;
  EXPECT_FALSE(Cholesky::Factor(matrix, kSize).has_value());
}

// A synthetic device: its layers' times are found again from sums of them.
TEST(LayerTimes, FindsTheLayersOfASyntheticDevice) {
  const ModelWork work = MobileNet();
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 0.5);
  std::vector<double> truth;
  for (int l = 0; l < work.layers(); ++l) truth.push_back(std::log(1e-3) + normal(random));
  truth.push_back(std::log(2e-9));
  truth.push_back(std::log(3e-10));
  const LayerTimes device(work, truth);
  std::vector<Observation> observations;
  for (int first = 0; first < work.layers(); ++first) {
    for (int last = first; last < work.layers(); last += 3)
      observations.push_back({{first, last}, device.Seconds({first, last})});
  }
  const absl::StatusOr<LayerTimes> found = FitLayerTimes(work, Broad(work, 2), observations, 0.001);
  ASSERT_TRUE(found.ok()) << found.status();
  for (int first = 0; first < work.layers(); ++first) {
    for (int last = first; last < work.layers(); ++last) {
      const double expected = device.Seconds({first, last});
      EXPECT_NEAR(found->Seconds({first, last}) / expected, 1, 0.01) << first << ".." << last;
    }
  }
}

TEST(LayerTimes, NothingMeasuredIsThePriorsMean) {
  const ModelWork work = MobileNet();
  const LayerPrior prior = Broad(work, 1);
  const absl::StatusOr<LayerTimes> times = FitLayerTimes(work, prior, {}, 0.02);
  ASSERT_TRUE(times.ok());
  for (size_t i = 0; i < prior.mean.size(); ++i)
    EXPECT_DOUBLE_EQ(times->log_seconds()[i], prior.mean[i]);
  const double elements = 16 * (3 * 32 * 32 + 32 * 16 * 16);
  EXPECT_NEAR(times->Seconds({0, 0}), 1e-3 + 1e-9 * elements, 1e-12);
}

// One wild measurement among good ones moves the rest by little.
TEST(LayerTimes, OneWildMeasurementIsOutvoted) {
  const ModelWork work = MobileNet();
  const LayerTimes device(work, Broad(work, 1).mean);
  std::vector<Observation> observations;
  for (int first = 0; first < work.layers(); ++first) {
    for (int last = first; last < work.layers(); last += 4)
      observations.push_back({{first, last}, device.Seconds({first, last})});
  }
  observations.push_back({{0, 9}, 3 * device.Seconds({0, 9})});
  const absl::StatusOr<LayerTimes> found = FitLayerTimes(work, Broad(work, 1), observations, 0.02);
  ASSERT_TRUE(found.ok());
  EXPECT_NEAR(found->Seconds({0, 9}) / device.Seconds({0, 9}), 1, 0.05);
}

TEST(LayerTimes, RefusesWhatDoesNotFit) {
  const ModelWork work = MobileNet();
  EXPECT_FALSE(FitLayerTimes(work, Broad(work, 1), {{{0, 20}, 1}}, 0.02).ok());
  EXPECT_FALSE(FitLayerTimes(work, Broad(work, 1), {{{3, 2}, 1}}, 0.02).ok());
  EXPECT_FALSE(FitLayerTimes(work, Broad(work, 1), {{{0, 1}, 0}}, 0.02).ok());
  EXPECT_FALSE(FitLayerTimes(work, Broad(work, 1), {}, 0).ok());
  LayerPrior prior = Broad(work, 1);
  prior.covariance[0] = -1;
  EXPECT_FALSE(FitLayerTimes(work, prior, {}, 0.02).ok());
  prior.mean.pop_back();
  EXPECT_FALSE(FitLayerTimes(work, prior, {}, 0.02).ok());
}

}  // namespace
}  // namespace runnel::layer_times_test
