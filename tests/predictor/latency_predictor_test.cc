#include "predictor/run/latency_predictor.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/sub_models.h"

namespace runnel::latency_predictor_test {
namespace {

constexpr int64_t kMaxMacs = int64_t{1} << 50;

// A device whose layers take what their MACs and elements say, each off by its own factor.
class Device {
 public:
  Device(const char* model, uint32_t seed) : model_(*MakeModel(model)) {
    work_ = std::make_unique<ModelWork>(*ModelWork::Create(model_, 8));
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 0.4);
    std::vector<double> logs;
    for (int l = 0; l < work_->layers(); ++l) {
      const double elements = work_->Of({l, l})[static_cast<size_t>(Work::kElementwiseElements)];
      logs.push_back(std::log(1e-10 * work_->Macs({l, l}) + 1e-9 * elements + 1e-5) +
                     normal(random));
    }
    logs.push_back(std::log(1e-9));
    logs.push_back(std::log(1e-10));
    layers_ = std::make_unique<LayerTimes>(*work_, logs);
  }

  const ModelWork& work() const { return *work_; }
  // Of a model that was never profiled.
  std::shared_ptr<const PredictorKnowledge> Knowledge() const {
    return std::make_shared<const PredictorKnowledge>(*PredictorKnowledge::Create(model_, 8, {}));
  }
  double speed = 1;  // seconds are multiplied by it
  Observation Measure(const LayerRange& range) const {
    return {range, speed * layers_->Seconds(range)};
  }
  std::vector<Observation> Representatives() const {
    std::vector<Observation> observations;
    const std::vector<LayerRange> ranges = *RepresentativeRanges(model_, kMaxMacs);
    for (const LayerRange& range : ranges) observations.push_back(Measure(range));
    return observations;
  }
  // Of all ranges: the share whose prediction is within 10 %.
  double Share(const DevicePredictor& predictor) const {
    int good = 0, all = 0;
    for (int first = 0; first < work_->layers(); ++first) {
      for (int last = first; last < work_->layers(); ++last, ++all)
        good +=
            std::abs(predictor.Seconds({first, last}) / Measure({first, last}).seconds - 1) < 0.1;
    }
    return static_cast<double>(good) / all;
  }

 private:
  ModelSpec model_;
  std::unique_ptr<ModelWork> work_;
  std::unique_ptr<LayerTimes> layers_;
};

// A model that was never profiled: the ten say something, each stage that ran says more.
TEST(LatencyPredictor, ColdStartGetsBetterAsItRuns) {
  const Device device("mobilenet_v2", 3);
  const std::vector<Observation> ten = device.Representatives();
  absl::StatusOr<DevicePredictor> predictor =
      DevicePredictor::Create(*FindPredictor("mixture"), device.Knowledge(), ten, {0.6, 64});
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  const double cold = device.Share(*predictor);
  EXPECT_GT(cold, 0.3);
  for (int layer = 0; layer < 20; ++layer) {
    const LayerRange range{layer, std::min(layer + 1, 19)};
    ASSERT_TRUE(predictor->Report(device.Measure(range)).ok());
  }
  EXPECT_GT(device.Share(*predictor), std::max(0.85, cold));
}

TEST(LatencyPredictor, AskesForMeasurementsWhenTheDeviceChanges) {
  Device device("mobilenet_v2", 4);
  const std::vector<Observation> ten = device.Representatives();
  absl::StatusOr<DevicePredictor> predictor =
      DevicePredictor::Create(*FindPredictor("mixture"), device.Knowledge(), ten);
  ASSERT_TRUE(predictor.ok());
  const LayerRange stage = ten[7].range;
  EXPECT_EQ(*predictor->Report(device.Measure(stage)), ReportOutcome::kLearned);
  EXPECT_EQ(predictor->samples(), 1u);
  device.speed = 2;
  const double before = predictor->Seconds(stage);
  EXPECT_EQ(*predictor->Report(device.Measure(stage)), ReportOutcome::kMeasure);
  EXPECT_EQ(predictor->Seconds(stage), before);
  ASSERT_TRUE(predictor->Characterise(device.Representatives()).ok());
  EXPECT_NEAR(predictor->Seconds(stage) / before, 2, 0.05);
  EXPECT_EQ(predictor->samples(), 0u);
  EXPECT_EQ(*predictor->Report(device.Measure(stage)), ReportOutcome::kLearned);
}

TEST(LatencyPredictor, KeepsTheNewestSamples) {
  const Device device("lenet", 5);
  const std::vector<Observation> ten = device.Representatives();
  absl::StatusOr<DevicePredictor> predictor =
      DevicePredictor::Create(*FindPredictor("mixture"), device.Knowledge(), ten, {0.5, 3});
  ASSERT_TRUE(predictor.ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(predictor->Report(device.Measure({0, 5})).ok());
  EXPECT_EQ(predictor->samples(), 3u);
}

TEST(LatencyPredictor, BadReportsChangeNothing) {
  const Device device("lenet", 6);
  const std::vector<Observation> ten = device.Representatives();
  absl::StatusOr<DevicePredictor> predictor =
      DevicePredictor::Create(*FindPredictor("mixture"), device.Knowledge(), ten);
  ASSERT_TRUE(predictor.ok());
  const double before = predictor->Seconds({0, 5});
  EXPECT_FALSE(predictor->Report({{0, 6}, 1}).ok());
  EXPECT_FALSE(predictor->Report({{0, 5}, 0}).ok());
  EXPECT_FALSE(predictor->Report({{0, 5}, std::nan("")}).ok());
  EXPECT_EQ(predictor->Seconds({0, 5}), before);
}

}  // namespace
}  // namespace runnel::latency_predictor_test
