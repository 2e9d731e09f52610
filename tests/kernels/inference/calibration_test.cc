#include "kernels/models/quantize/calibration.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/models/graph/factor.h"
#include "proto/base/random.h"
#include "tests/kernels/inference/golden.h"

namespace runnel::inference::calibration_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kLevels = 128;

Histogram HistogramOf(const json& golden) {
  Histogram histogram;
  histogram.absmax = golden["absmax"];
  histogram.counts = golden["hist"].get<std::vector<double>>();
  return histogram;
}

void ExpectDivergences(const json& rule, const Histogram& histogram, KlRule kl) {
  ASSERT_FALSE(rule["kl_at"].empty());
  for (const auto& [bins, divergence] : rule["kl_at"].items()) {
    EXPECT_NEAR(KlDivergence(histogram, std::stoi(bins), kLevels, kl), divergence, 1e-9)
        << bins << " bins";
  }
}

TEST(Calibration, KlThresholdsAreTheGoldenOnes) {
  const json golden = Golden("kl_calibration.json");
  ASSERT_EQ(golden["cases"].size(), 5u);
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one["name"]);
    const Histogram histogram = HistogramOf(one);
    ASSERT_EQ(histogram.counts.size(), static_cast<size_t>(kHistogramBins));

    const json& ncnn = one["ncnn_rule"];
    const KlChoice choice = ChooseKl(histogram, kLevels, KlRule::kNcnn);
    EXPECT_EQ(choice.bins, ncnn["best_t"]);
    EXPECT_NEAR(choice.divergence, ncnn["kl"], 1e-9);
    EXPECT_NEAR(choice.threshold, ncnn["threshold"], 1e-12 * choice.threshold);
    EXPECT_NEAR(127 / choice.threshold, ncnn["scale"], 1e-9 * (127 / choice.threshold));
    ExpectDivergences(ncnn, histogram, KlRule::kNcnn);

    // Some of these curves are flat around their lowest point.
    const json& migacz = one["migacz_rule"];
    EXPECT_NEAR(ChooseKl(histogram, kLevels, KlRule::kMigacz).divergence, migacz["kl"], 1e-9);
    ExpectDivergences(migacz, histogram, KlRule::kMigacz);
  }
}

Observer Watch(const std::vector<float>& values) {
  Observer observer;
  observer.AddRange(values);
  observer.AddHistogram(values);
  return observer;
}

CalibrationRule Rule(const char* text) { return ParseCalibration(text).value(); }

TEST(Calibration, RulesClipWhatTheySay) {
  // 1 to 1000, and one far off, on the negative side.
  std::vector<float> values(1000);
  for (int i = 0; i < 1000; ++i) values[i] = static_cast<float>(i + 1);
  values.push_back(-100'000.0f);
  const Observer observer = Watch(values);
  const Range all = observer.Choose(Rule("absmax"), kLevels);
  EXPECT_EQ(all.low, -100'000);
  EXPECT_EQ(all.high, 1000);
  const double bin = 100'000.0 / kHistogramBins;
  const Range most = observer.Choose(Rule("percentile:99.9"), kLevels);
  EXPECT_NEAR(most.low, -1000, bin);
  EXPECT_EQ(most.high, 1000);
  EXPECT_EQ(observer.Choose(Rule("percentile:100"), kLevels).low, -100'000);
  const Range half = observer.Choose(Rule("percentile:50.1"), kLevels);
  EXPECT_NEAR(half.high, 501, bin);
  // The lower end of the search.
  const Range kl = observer.Choose(Rule("kl"), kLevels);
  EXPECT_NEAR(kl.low, -128.5 * bin, 1e-6);
}

TEST(Calibration, ZerosAloneHaveNoRange) {
  const Observer observer = Watch(std::vector<float>(10, 0.0f));
  for (const char* rule : {"kl", "kl:migacz", "absmax", "percentile:99"}) {
    EXPECT_EQ(observer.Choose(Rule(rule), kLevels).absmax(), 0) << rule;
  }
}

TEST(Calibration, UnknownRulesAreRefusedByName) {
  for (const char* text : {"", "KL", "entropy", "percentile", "percentile:", "percentile:x",
                           "percentile:50", "percentile:100.1", "percentile:nan", "kl:ncnn"}) {
    const absl::Status status = ParseCalibration(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(status.message(), HasSubstr("kl, kl:migacz, absmax, percentile:P"));
  }
}

TEST(Requantize, RoundsHalvesAwayAsTheGoldenFile) {
  const json golden = Golden("int8_winograd.json");
  ASSERT_GT(golden["requantise_half_away"].size(), 50u);
  for (const json& one : golden["requantise_half_away"]) {
    const Factor factor = FactorOf(one["M"]);
    const int64_t zero = one["Z"];
    EXPECT_EQ(ClampCode(Multiply(one["acc"], factor) + zero, -127, 127), one["y"]) << one;
  }
}

TEST(Requantize, AFactorHas31BitsAndOneRounding) {
  const CounterRandom random(1, RandomPurpose::kTest, 1, 0);
  for (uint64_t i = 0; i < 20'000; ++i) {
    const double real = std::ldexp(1 + random.Uniform(3 * i), static_cast<int>(i % 40) - 30);
    const auto sum = static_cast<int64_t>((random.Uniform(3 * i + 1) * 2 - 1) * 2147483647.0);
    const Factor factor = FactorOf(real);
    EXPECT_NEAR(std::ldexp(factor.multiplier, -factor.shift), real, real * 0x1p-31);
    const auto exact = static_cast<long double>(sum) * factor.multiplier /
                       std::pow(2.0L, static_cast<long double>(factor.shift));
    EXPECT_EQ(Multiply(sum, factor), std::llround(exact)) << real << " * " << sum;
  }
  EXPECT_EQ(FactorOf(0), (Factor{0, 1}));
  EXPECT_EQ(FactorOf(1e-12), (Factor{0, 1}));
  EXPECT_EQ(FactorOf(1e30), (Factor{INT32_MAX, 1}));
  // Rounds up to the next power of two.
  EXPECT_EQ(FactorOf(1 - 0x1p-40), (Factor{1 << 30, 30}));
}

}  // namespace
}  // namespace runnel::inference::calibration_test
