#include "predictor/fit/device_mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/fit/informative_ranges.h"
#include "predictor/profiles/sub_models.h"
#include "proto/base/plan/layer_range.h"

namespace runnel::device_mixture_test {
namespace {

constexpr int64_t kBatch = 16;
const ModelWork& MobileNet() {
  static const ModelWork work = *ModelWork::Create(*MakeModel("mobilenet_v2"), kBatch);
  return work;
}
std::vector<LayerRange> Sample() {
  return *ProfileSample(*MakeModel("mobilenet_v2"), kMaxProfiledMacs, 10, 1);
}

// A made-up device: each kind of work at its own cost, off the typical one by a factor.
class MadeUp {
 public:
  MadeUp(double deviation, uint32_t seed) : cost_(kTypicalSeconds) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 1);
    for (double& one : cost_) one *= std::exp(deviation * normal(random));
  }
  double Seconds(const LayerRange& range) const {
    const WorkVector counts = MobileNet().Of(range);
    double seconds = 0;
    for (size_t k = 0; k < counts.size(); ++k) seconds += counts[k] * cost_[k];
    return seconds;
  }
  std::vector<Observation> Measure(const std::vector<LayerRange>& ranges, double noise,
                                   uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 1);
    std::vector<Observation> observations;
    for (const LayerRange& range : ranges)
      observations.push_back({range, Seconds(range) * std::exp(noise * normal(random))});
    return observations;
  }
  KnownDevice Profile(double noise, uint32_t seed) const {
    return *KnownDevice::Create(MobileNet(), kBatch, Measure(Sample(), noise, seed));
  }

 private:
  WorkVector cost_;
};

DeviceMixture::Known Made(int count, double deviation) {
  auto known = std::make_shared<std::vector<KnownDevice>>();
  for (int d = 0; d < count; ++d)
    known->push_back(MadeUp(deviation, 10 + d).Profile(0.01, 100 + d));
  return known;
}

std::vector<LayerRange> Informative(size_t count) {
  const std::vector<LayerRange> all = Sample();
  std::vector<LayerRange> chosen;
  for (const size_t i : MostInformativeRanges(MobileNet(), all, {}, {}, count))
    chosen.push_back(all[i]);
  return chosen;
}

// Share of all 210 ranges that are predicted within 5 %.
double Share(const DeviceMixture& mixture, const MadeUp& device) {
  double good = 0;
  const std::vector<LayerRange> all = AllRanges(MobileNet().layers());
  for (const LayerRange& range : all)
    good += std::abs(mixture.Seconds(range) / device.Seconds(range) - 1) < 0.05;
  return good / static_cast<double>(all.size());
}

// The slow way: solves by elimination with pivots. matrix is size x size; gives the determinant's
// logarithm.
double Eliminate(std::vector<std::vector<double>> matrix, std::vector<double>& right) {
  const size_t size = right.size();
  double log_determinant = 0;
  for (size_t c = 0; c < size; ++c) {
    size_t pivot = c;
    for (size_t r = c; r < size; ++r) {
      if (std::abs(matrix[r][c]) > std::abs(matrix[pivot][c])) pivot = r;
    }
    std::swap(matrix[c], matrix[pivot]);
    std::swap(right[c], right[pivot]);
    log_determinant += std::log(std::abs(matrix[c][c]));
    for (size_t r = 0; r < size; ++r) {
      if (r == c) continue;
      const double factor = matrix[r][c] / matrix[c][c];
      for (size_t k = c; k < size; ++k) matrix[r][k] -= factor * matrix[c][k];
      right[r] -= factor * right[c];
    }
  }
  for (size_t c = 0; c < size; ++c) right[c] /= matrix[c][c];
  return log_determinant;
}

// One hypothesis of the reference: the logarithm of what `range` takes, and how likely it makes the
// measurements. Of layers rather than of kinds of work: each layer's cost is off by what its kinds'
// are, and the shares of the layers in a range's time are taken where the first round ends.
struct Hypothesis {
  double log_seconds = 0;
  double log_likelihood = 0;
};

Hypothesis SlowHypothesis(const KnownDevice& device, double deviation, double shift,
                          const std::vector<Observation>& own, const LayerRange& range) {
  const double variance = deviation * deviation;
  const int layers = MobileNet().layers();
  const std::vector<WorkVector> kinds = LayerKinds(MobileNet());
  std::vector<double> costs(layers, 0);
  const auto sum = [&](const LayerRange& of, const std::vector<double>& at) {
    double seconds = 0;
    for (int l = of.first_layer; l <= of.last_layer; ++l)
      seconds += device.Seconds({l, l}) * std::exp(at[l]);
    return seconds;
  };
  const auto slope = [&](const LayerRange& of, int l) {
    if (l < of.first_layer || l > of.last_layer) return 0.0;
    return device.Seconds({l, l}) * std::exp(costs[l]) / sum(of, costs);
  };
  const auto layer_covariance = [&](int a, int b) {
    double dot = 0;
    for (size_t k = 0; k < kinds[a].size(); ++k) dot += kinds[a][k] * kinds[b][k];
    return variance * 4.5 * dot;
  };
  const auto beside = [&](const LayerRange& a, const LayerRange& b) {
    return variance * CovarianceWithoutKinds(device.View(a), device.View(b)) + 1.0;
  };
  const std::vector<double> none(layers, 0);
  Hypothesis result;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::vector<double>> matrix(own.size(), std::vector<double>(own.size()));
    std::vector<double> off;
    for (size_t i = 0; i < own.size(); ++i) {
      const LayerRange& a = own[i].range;
      off.push_back(std::log(own[i].seconds / device.Seconds(a)) - shift -
                    std::log(sum(a, costs) / sum(a, none)));
      for (int l = 0; l < layers; ++l) off[i] += slope(a, l) * costs[l];
      for (size_t j = 0; j < own.size(); ++j) {
        matrix[i][j] = beside(a, own[j].range) + (i == j ? 0.03 * 0.03 : 0);
        for (int l = 0; l < layers; ++l) {
          for (int m = 0; m < layers; ++m)
            matrix[i][j] += slope(a, l) * slope(own[j].range, m) * layer_covariance(l, m);
        }
      }
    }
    std::vector<double> solved = off;
    result.log_likelihood = -Eliminate(matrix, solved) / 2;
    result.log_seconds = std::log(device.Seconds(range)) + shift;
    std::vector<double> next(layers, 0);
    for (size_t i = 0; i < own.size(); ++i) {
      result.log_likelihood -= off[i] * solved[i] / 2;
      result.log_seconds += beside(range, own[i].range) * solved[i];
      for (int l = 0; l < layers; ++l) {
        for (int m = 0; m < layers; ++m)
          next[l] += layer_covariance(l, m) * slope(own[i].range, m) * solved[i];
      }
    }
    costs = next;
    result.log_seconds += std::log(sum(range, costs) / sum(range, none));
  }
  return result;
}

// Each known device and deviation by itself, averaged by likelihood.
double Reference(const std::vector<KnownDevice>& known, const std::vector<Observation>& own,
                 int64_t batch, const LayerRange& range) {
  std::vector<Hypothesis> all;
  for (const KnownDevice& device : known) {
    const double shift = std::log(double(batch) / double(device.batch()));
    for (const double deviation : {0.02, 0.05, 0.1, 0.2, 0.4, 0.8})
      all.push_back(SlowHypothesis(device, deviation, shift, own, range));
  }
  double best = -std::numeric_limits<double>::infinity();
  for (const Hypothesis& one : all) best = std::max(best, one.log_likelihood);
  double sum = 0, weights = 0;
  for (const Hypothesis& one : all) {
    sum += std::exp(one.log_likelihood - best) * one.log_seconds;
    weights += std::exp(one.log_likelihood - best);
  }
  return std::exp(sum / weights);
}

TEST(DeviceMixture, EqualsTheReference) {
  const DeviceMixture::Known known = Made(3, 0.4);
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const MadeUp device(0.4, seed);
    const std::vector<Observation> own = device.Measure(Informative(3 * seed), 0.03, seed);
    const int64_t batch = 8 * seed;
    const absl::StatusOr<DeviceMixture> mixture = DeviceMixture::Fit(known, own, batch);
    ASSERT_TRUE(mixture.ok()) << mixture.status();
    for (const LayerRange& range : {LayerRange{0, 0}, {0, 19}, {3, 7}, {5, 5}, {18, 19}, {2, 11}}) {
      const double slow = Reference(*known, own, batch, range);
      EXPECT_NEAR(mixture->Seconds(range) / slow, 1, 1e-7) << range.first_layer;
    }
  }
}

// Nothing measured: the known devices' mean, at the batch size.
TEST(DeviceMixture, NothingMeasured) {
  const DeviceMixture::Known known = Made(2, 0.4);
  const absl::StatusOr<DeviceMixture> mixture = DeviceMixture::Fit(known, {}, 2 * kBatch);
  ASSERT_TRUE(mixture.ok());
  const LayerRange range{4, 9};
  const double mean = std::sqrt((*known)[0].Seconds(range) * (*known)[1].Seconds(range));
  EXPECT_NEAR(mixture->Seconds(range), 2 * mean, 1e-9 * mean);
}

// Another of a kind that is known, at another speed: all ranges from ten.
TEST(DeviceMixture, OneOfAKnownKind) {
  const DeviceMixture::Known known = Made(5, 0.5);
  const MadeUp device(0.5, 12);
  std::vector<Observation> own = device.Measure(Informative(10), 0.01, 7);
  for (Observation& one : own) one.seconds *= 3;
  const absl::StatusOr<DeviceMixture> mixture = DeviceMixture::Fit(known, own, kBatch);
  ASSERT_TRUE(mixture.ok());
  double good = 0;
  for (const LayerRange& range : Sample()) {
    const double ratio = mixture->Seconds(range) / (3 * device.Seconds(range));
    EXPECT_NEAR(ratio, 1, 0.15);
    good += std::abs(ratio - 1) < 0.05;
  }
  EXPECT_GT(good, 0.95 * static_cast<double>(Sample().size()));
}

// Of another kind than all known ones: more measurements, a better prediction.
TEST(DeviceMixture, AnotherKindIsLearned) {
  const DeviceMixture::Known known = Made(4, 0.3);
  const MadeUp device(0.8, 77);
  std::vector<double> shares;
  for (const size_t count : {2, 10, 24}) {
    const absl::StatusOr<DeviceMixture> mixture =
        DeviceMixture::Fit(known, device.Measure(Informative(count), 0.01, 3), kBatch);
    ASSERT_TRUE(mixture.ok());
    shares.push_back(Share(*mixture, device));
  }
  EXPECT_LT(shares[0], 0.7);
  EXPECT_GT(shares[1], shares[0] + 0.1);
  EXPECT_GT(shares[2], 0.85);
}

// Sooner or later each representative is measured again; the same range twice is no harm.
TEST(DeviceMixture, TheSameRangeManyTimes) {
  const DeviceMixture::Known known = Made(3, 0.3);
  const MadeUp device(0.3, 5);
  std::vector<Observation> own = device.Measure(Informative(10), 0.01, 3);
  for (int i = 0; i < 60; ++i) own.push_back(own[4]);
  const absl::StatusOr<DeviceMixture> mixture = DeviceMixture::Fit(known, own, kBatch);
  ASSERT_TRUE(mixture.ok()) << mixture.status();
  EXPECT_NEAR(mixture->Seconds(own[4].range) / own[4].seconds, 1, 0.02);
}

TEST(DeviceMixture, RefusesWhatIsNoMeasurement) {
  const DeviceMixture::Known known = Made(1, 0.3);
  EXPECT_FALSE(DeviceMixture::Fit(nullptr, {}, kBatch).ok());
  EXPECT_FALSE(DeviceMixture::Fit(std::make_shared<std::vector<KnownDevice>>(), {}, kBatch).ok());
  const double infinite = std::numeric_limits<double>::infinity();
  for (const Observation& bad : {Observation{{0, 20}, 1},
                                 {{3, 2}, 1},
                                 {{0, 1}, 0},
                                 {{0, 1}, std::nan("")},
                                 {{0, 1}, infinite}})
    EXPECT_FALSE(DeviceMixture::Fit(known, {bad}, kBatch).ok());
}

TEST(KnownDevice, WhatWasMeasuredStays) {
  const MadeUp made(0.3, 5);
  const std::vector<Observation> measured = made.Measure(Sample(), 0.05, 2);
  const KnownDevice device = *KnownDevice::Create(MobileNet(), kBatch, measured);
  for (const Observation& one : measured) {
    EXPECT_TRUE(device.Measured(one.range));
    EXPECT_EQ(device.Seconds(one.range), one.seconds);
  }
  EXPECT_EQ(device.MeasuredRanges().size(), measured.size());
  EXPECT_FALSE(device.Measured({6, 17}));
  EXPECT_NEAR(device.Seconds({6, 17}) / made.Seconds({6, 17}), 1, 0.1);
}

TEST(RangeView, SharesAddUpAndLikeIsLike) {
  const KnownDevice device = MadeUp(0, 1).Profile(0, 1);
  for (const LayerRange& range : AllRanges(MobileNet().layers())) {
    double sum = 0;
    for (const double share : device.View(range).kinds.by_kind) sum += share;
    EXPECT_NEAR(sum, 1, 1e-12);
  }
  // Layers 7 to 9 of MobileNetV2 are alike, the first and the last layer are not.
  const auto correlation = [&](const LayerRange& a, const LayerRange& b) {
    const RangeView x = device.View(a), y = device.View(b);
    return Covariance(x, y) / std::sqrt(Covariance(x, x) * Covariance(y, y));
  };
  EXPECT_GT(correlation({8, 8}, {9, 9}), 0.98);
  EXPECT_LT(correlation({0, 0}, {19, 19}), 0.7);
  EXPECT_DOUBLE_EQ(correlation({0, 4}, {3, 3}), correlation({3, 3}, {0, 4}));
}

// A layer by itself has what it touches in the cache, or does not; more layers push it out.
TEST(RangeView, BytesFromBeyondTheCacheAreOfMoreLayersThanOne) {
  const KnownDevice device = MadeUp(0, 1).Profile(0, 1);
  EXPECT_EQ(device.View({2, 2}).beyond_share, 0);
  EXPECT_GT(device.View({1, 2}).beyond_share, 0);
  const RangeView all = device.View({0, 19});
  EXPECT_NEAR(all.beyond_share * std::exp(all.log_seconds),
              MobileNet().BytesBeyondCache({0, 19}) * 0.1e-9, 1e-12);
}

// Where a byte from beyond the cache costs more than on the known device, the measurements of
// ranges that fetch some tell of others that do.
TEST(DeviceMixture, BytesFromBeyondTheCacheAreLearned) {
  const MadeUp work(0, 1);
  const auto measured = [&work](double byte_seconds, const std::vector<LayerRange>& ranges) {
    std::vector<Observation> observations;
    for (const LayerRange& range : ranges) {
      const double bytes = MobileNet().BytesBeyondCache(range);
      observations.push_back({range, work.Seconds(range) + bytes * byte_seconds});
    }
    return observations;
  };
  constexpr double kByteSeconds = 0.4e-9;
  auto known = std::make_shared<std::vector<KnownDevice>>();
  known->push_back(*KnownDevice::Create(MobileNet(), kBatch, measured(0, Sample())));
  std::vector<LayerRange> own = {{1, 4}, {3, 12}};
  for (int l = 0; l < MobileNet().layers(); ++l) own.push_back({l, l});
  const DeviceMixture mixture = *DeviceMixture::Fit(known, measured(kByteSeconds, own), kBatch);
  for (const LayerRange& range : {LayerRange{0, 9}, {2, 6}, {4, 16}, {0, 19}}) {
    const double truth = measured(kByteSeconds, {range})[0].seconds;
    EXPECT_GT(truth, 1.5 * work.Seconds(range));
    EXPECT_NEAR(mixture.Seconds(range) / truth, 1, 0.03)
        << range.first_layer << " to " << range.last_layer;
  }
}

// Each next range takes most of what is left unknown: by conditioning anew on all before it.
TEST(InformativeRanges, GreedyByWhatIsLeft) {
  const std::vector<LayerRange> all = Sample();
  const std::vector<size_t> ten = MostInformativeRanges(MobileNet(), all, {}, {}, 10);
  ASSERT_EQ(ten.size(), 10u);
  const std::vector<size_t> four(ten.begin(), ten.begin() + 4);
  // Going on from the first four is the same as having gone on.
  EXPECT_EQ(MostInformativeRanges(MobileNet(), all, four, {}, 6),
            std::vector<size_t>(ten.begin() + 4, ten.end()));
  const std::vector<size_t> others = MostInformativeRanges(MobileNet(), all, {}, ten, all.size());
  EXPECT_EQ(others.size(), all.size() - 10);
  for (const size_t i : others) EXPECT_EQ(std::count(ten.begin(), ten.end(), i), 0);
  // They tell more than AccEPT's ten do.
  const DeviceMixture::Known known = Made(4, 0.3);
  double informative = 0, ranked = 0;
  for (uint32_t seed = 70; seed < 80; ++seed) {
    const MadeUp device(0.8, seed);
    informative +=
        Share(*DeviceMixture::Fit(known, device.Measure(Informative(10), 0.01, 3), kBatch), device);
    ranked +=
        Share(*DeviceMixture::Fit(
                  known,
                  device.Measure(
                      *RepresentativeRanges(*MakeModel("mobilenet_v2"), kMaxProfiledMacs), 0.01, 3),
                  kBatch),
              device);
  }
  EXPECT_GT(informative, ranked);
}

}  // namespace
}  // namespace runnel::device_mixture_test
