#include "predictor/run/run_predictor.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/sub_models.h"
#include "proto/base/plan/layer_range.h"

namespace runnel::run_predictor_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 16;

// Devices whose layers take what a made-up device takes, each off by a little: alike, as devices of
// one kind are. The same seed, the same device.
class MadeUp {
 public:
  explicit MadeUp(const char* model, uint32_t seed = 1)
      : model_(*MakeModel(model)), work_(*ModelWork::Create(model_, kBatch)) {
    std::mt19937 shape(7), own(seed);
    // Each keeps a number back for the next draw: one for each stream.
    std::normal_distribution<double> common(0, 0.6), normal(0, 1);
    const double speed = normal(own) * 0.5;
    for (int l = 0; l < work_.layers(); ++l) {
      const double base = std::log(1e-10 * work_.Macs({l, l}) + 1e-5) + common(shape);
      logs_.push_back(base + speed + 0.05 * normal(own));
    }
    logs_.push_back(std::log(1e-9));
    logs_.push_back(std::log(1e-10));
  }

  double Seconds(const LayerRange& range) const { return LayerTimes(work_, logs_).Seconds(range); }
  std::vector<double> Of(const std::vector<LayerRange>& ranges) const {
    std::vector<double> seconds;
    for (const LayerRange& range : ranges) seconds.push_back(Seconds(range));
    return seconds;
  }
  const ModelSpec& model() const { return model_; }
  void AddTo(DeviceProfile& profile) const {
    const std::vector<LayerRange> ranges = *ProfileSample(model_, kMaxProfiledMacs, 12, 1);
    for (const LayerRange& range : ranges)
      profile.sub_models.push_back({model_.name, range, kBatch, Seconds(range), 0.01, 0, 0});
  }
  // Of all ranges: the share that is predicted within 5 %.
  double Share(const RunPredictor& predictor, int device) const {
    double good = 0;
    const std::vector<LayerRange> ranges = AllRanges(work_.layers());
    for (const LayerRange& range : ranges)
      good += std::abs(predictor.Seconds(device, range) / Seconds(range) - 1) < 0.05;
    return good / static_cast<double>(ranges.size());
  }

 private:
  ModelSpec model_;
  ModelWork work_;
  std::vector<double> logs_;
};

std::vector<DeviceProfile> Profiles(const char* model, int count) {
  std::vector<DeviceProfile> profiles;
  for (int i = 0; i < count; ++i) {
    DeviceProfile profile;
    profile.name = absl::StrCat("known_", i);
    profile.batch = kBatch;
    MadeUp("har_cnn", 50 + i).AddTo(profile);
    MadeUp(model, 100 + i).AddTo(profile);
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

const PredictorRow* Row(const char* name) { return *FindPredictor(name); }

RunPredictor Mixture(const ModelSpec& model, std::vector<KnownDevice> known,
                     const PredictorOptions& options = {}) {
  return *RunPredictor::Create(
      Row("mixture"), *PredictorKnowledge::Create(model, kBatch, std::move(known)), options);
}

TEST(RunPredictor, DevicesThatAreKnownTellOfANewOne) {
  const MadeUp device("mobilenet_v2", 9);
  const absl::StatusOr<std::vector<KnownDevice>> known =
      KnownDevices(Profiles("mobilenet_v2", 6), device.model());
  ASSERT_TRUE(known.ok()) << known.status();
  ASSERT_EQ(known->size(), 6u);
  RunPredictor warm = Mixture(device.model(), *known);
  RunPredictor cold = Mixture(device.model(), {});
  EXPECT_EQ(warm.known_devices(), 6u);
  EXPECT_EQ(warm.representatives().size(), 10u);
  for (RunPredictor* predictor : {&warm, &cold}) {
    EXPECT_FALSE(predictor->Knows(3));
    const std::vector<double> ten = device.Of(predictor->representatives());
    ASSERT_TRUE(predictor->Characterise(3, ten).ok());
    EXPECT_TRUE(predictor->Knows(3));
  }
  EXPECT_GT(warm.known_devices(), cold.known_devices());
  EXPECT_GT(device.Share(warm, 3), 0.9);
  EXPECT_LT(device.Share(cold, 3), device.Share(warm, 3));
}

// A user's own model: the ten, and then what its stages take.
TEST(RunPredictor, ColdStartGetsBetterAsItRuns) {
  const MadeUp device("mobilenet_v2", 9);
  EXPECT_TRUE(KnownDevices(Profiles("lenet", 2), device.model())->empty());
  RunPredictor predictor = Mixture(device.model(), {}, {.epsilon = 0.6});
  ASSERT_TRUE(predictor.Characterise(0, device.Of(predictor.representatives())).ok());
  const double cold = device.Share(predictor, 0);
  for (int first = 0; first < 20; first += 2) {
    for (int last : {first, std::min(first + 4, 19)})
      ASSERT_TRUE(predictor.Report(0, {{first, last}, device.Seconds({first, last})}).ok());
  }
  EXPECT_GT(device.Share(predictor, 0), cold + 0.1);
}

TEST(RunPredictor, RangesComeInTheOrderOfTheirPlaces) {
  const MadeUp device("lenet");
  RunPredictor predictor = Mixture(device.model(), {});
  ASSERT_TRUE(predictor.Characterise(0, device.Of(predictor.representatives())).ok());
  const std::vector<double> seconds = predictor.Times(0).figures();
  const int layers = device.model().layer_count();
  ASSERT_EQ(seconds.size(), RangeCount(layers));
  EXPECT_EQ(seconds[RangeIndex(layers, {1, 3})], predictor.Seconds(0, {1, 3}));
  // More than a sum of layers: each of those has boundaries of its own.
  EXPECT_LT(seconds[RangeIndex(layers, {1, 2})],
            seconds[RangeIndex(layers, {1, 1})] + seconds[RangeIndex(layers, {2, 2})]);
}

// Another speed is only believed when the ten say so, and then nothing of before counts.
TEST(RunPredictor, DevicesChange) {
  const MadeUp device("mobilenet_v2", 9);
  RunPredictor predictor = Mixture(device.model(), {});
  std::vector<double> ten = device.Of(predictor.representatives());
  ASSERT_TRUE(predictor.Characterise(0, ten).ok());
  ASSERT_TRUE(predictor.Characterise(1, ten).ok());
  const LayerRange stage{5, 12};
  const double before = predictor.Seconds(0, stage);
  EXPECT_EQ(*predictor.Report(0, {stage, before * 1.1}), ReportOutcome::kLearned);
  EXPECT_GT(predictor.Seconds(0, stage), before);
  EXPECT_EQ(predictor.Seconds(1, stage), before) << "the other device";
  EXPECT_EQ(*predictor.Report(0, {stage, before * 2}), ReportOutcome::kMeasure);
  for (double& seconds : ten) seconds *= 2;
  ASSERT_TRUE(predictor.Characterise(0, ten).ok());
  EXPECT_NEAR(predictor.Seconds(0, stage) / before, 2, 0.02);
}

TEST(RunPredictor, RefusesWhatIsNoMeasurement) {
  const MadeUp device("lenet");
  RunPredictor predictor = Mixture(device.model(), {});
  std::vector<double> ten = device.Of(predictor.representatives());
  EXPECT_EQ(predictor.Report(0, {{0, 1}, 1}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ten[3] = 0;
  EXPECT_THAT(std::string(predictor.Characterise(0, ten).message()), HasSubstr("0 s is no time"));
  ten.pop_back();
  EXPECT_FALSE(predictor.Characterise(0, ten).ok());
  EXPECT_FALSE(predictor.Knows(0));
}

TEST(RunPredictor, AProfileThatLacksALayerIsNamed) {
  std::vector<DeviceProfile> profiles = Profiles("lenet", 2);
  std::erase_if(profiles[1].sub_models, [](const SubModelTime& row) {
    return row.model == "lenet" && row.range == LayerRange{2, 2};
  });
  const absl::Status status = KnownDevices(profiles, *MakeModel("lenet")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("known_1"));
  EXPECT_TRUE(KnownDevices(profiles, *MakeModel("har_cnn")).ok());
}

}  // namespace
}  // namespace runnel::run_predictor_test
