// Every row of the table of predictors, on devices of a made-up world.

#include "predictor/run/predictor_row.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/run/accept_row.h"
#include "predictor/run/mlp_row.h"
#include "proto/base/plan/layer_range.h"

namespace runnel::predictor_row_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 16;

const ModelSpec& Model() {
  static const ModelSpec model = *MakeModel("lenet");
  return model;
}
int Layers() { return Model().layer_count(); }

// Layers of LeNet on a device of this speed, each a little off.
class Device {
 public:
  Device(uint32_t seed, double speed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 0.03);
    const ModelWork work = *ModelWork::Create(Model(), kBatch);
    for (int l = 0; l < Layers(); ++l)
      layers_.push_back(speed * (1e-10 * work.Macs({l, l}) + 1e-5) * std::exp(normal(random)));
  }
  double Seconds(const LayerRange& range) const {
    double seconds = 0;
    for (int l = range.first_layer; l <= range.last_layer; ++l) seconds += layers_[size_t(l)];
    return seconds;
  }
  std::vector<Observation> Measure(const std::vector<LayerRange>& ranges, double factor = 1) const {
    std::vector<Observation> measured;
    for (const LayerRange& range : ranges) measured.push_back({range, factor * Seconds(range)});
    return measured;
  }
  KnownDevice Known(bool central) const {
    return *KnownDevice::Create(*ModelWork::Create(Model(), kBatch), kBatch,
                                Measure(AllRanges(Layers())), central);
  }

 private:
  std::vector<double> layers_;
};

LinearLayer Zero(int inputs, int outputs) {
  return {inputs, outputs, std::vector<float>(size_t(inputs * outputs), 0.0f),
          std::vector<float>(size_t(outputs), 0.0f)};
}

// A network that says `value`, whatever comes in.
Mlp Constant(int encoding, int hardware, float value) {
  Mlp mlp;
  mlp.encoding_mean.assign(size_t(encoding), 0);
  mlp.encoding_scale.assign(size_t(encoding), 1);
  mlp.hardware_mean.assign(size_t(hardware), 0);
  mlp.hardware_scale.assign(size_t(hardware), 1);
  mlp.output_mean = value;
  mlp.encoding_1 = Zero(encoding, 2);
  mlp.encoding_2 = Zero(2, 2);
  mlp.joint_1 = Zero(2 + hardware, 2);
  mlp.joint_2 = Zero(2, 1);
  return mlp;
}

PredictorNetwork NetworkOf(const PredictorRow& row, float value) {
  if (row.network == "mlp")
    return {"mlp", "any", {Constant(kMlpRangeInputs, kMlpDeviceInputs, value)}};
  return {"accept", "lenet", {Constant(Layers(), 10, value)}};
}

PredictorKnowledge Knowledge(const PredictorRow& row, float value = 0) {
  std::vector<KnownDevice> known;
  for (uint32_t i = 0; i < 5; ++i) known.push_back(Device(i, 1 + i).Known(i == 2));
  PredictorKnowledge knowledge = *PredictorKnowledge::Create(Model(), kBatch, std::move(known));
  if (UsesNetwork(row, knowledge)) knowledge.network = NetworkOf(row, value);
  return knowledge;
}

class EveryRow : public testing::TestWithParam<std::string> {
 protected:
  const PredictorRow& row() const { return **FindPredictor(GetParam()); }
};

TEST_P(EveryRow, SaysATimeForEveryRangeAndLearnsFromReports) {
  const Device device(9, 2.5);
  const LayerRange whole{0, Layers() - 1};
  // AccEPT's network says one time for all ranges, and has to learn the rest.
  const PredictorKnowledge knowledge = Knowledge(row());
  ASSERT_TRUE(CheckKnowledge(row(), knowledge).ok());
  const std::vector<LayerRange> ranges = row().ranges(knowledge);
  ASSERT_GE(ranges.size(), 5u);
  const std::vector<Observation> measured = device.Measure(ranges);
  const auto before = row().fit(knowledge, measured, {});
  ASSERT_TRUE(before.ok()) << before.status();
  // The whole model took a tenth longer, again and again.
  const double slower = device.Seconds(whole) * 1.1;
  const std::vector<Observation> reports(20, {whole, slower});
  const auto after = row().fit(knowledge, measured, reports);
  ASSERT_TRUE(after.ok()) << after.status();
  for (const LayerRange& range : AllRanges(Layers())) {
    EXPECT_GT((*before)->Seconds(range), 0);
    EXPECT_TRUE(std::isfinite((*after)->Seconds(range)));
  }
  EXPECT_LT(std::abs((*after)->Seconds(whole) / slower - 1),
            std::abs((*before)->Seconds(whole) / slower - 1));
  // The same measurements, the same times.
  EXPECT_EQ((*(*row().fit(knowledge, measured, reports))).Seconds(whole), (*after)->Seconds(whole));
}

TEST_P(EveryRow, WithoutProfilesItStartsColdOrSaysWhyNot) {
  PredictorKnowledge knowledge = *PredictorKnowledge::Create(Model(), kBatch, {});
  const absl::Status status = CheckKnowledge(row(), knowledge);
  if (row().needs_profiles) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("no profile of lenet is known"));
    return;
  }
  ASSERT_TRUE(status.ok()) << status;
  const Device device(9, 2.5);
  const auto cold = row().fit(knowledge, device.Measure(row().ranges(knowledge)), {});
  ASSERT_TRUE(cold.ok()) << cold.status();
  const LayerRange whole{0, Layers() - 1};
  EXPECT_NEAR((*cold)->Seconds(whole) / device.Seconds(whole), 1, 0.5);
}

TEST_P(EveryRow, ItsNetworkIsAskedForAndMustFit) {
  PredictorKnowledge knowledge = Knowledge(row());
  if (!UsesNetwork(row(), knowledge)) return;
  const std::vector<Observation> measured = Device(9, 2.5).Measure(row().ranges(knowledge));
  knowledge.network->members = {Constant(3, 3, 0)};
  EXPECT_THAT(std::string(row().fit(knowledge, measured, {}).status().message()),
              HasSubstr("other inputs"));
  knowledge.network.reset();
  EXPECT_THAT(std::string(CheckKnowledge(row(), knowledge).message()),
              HasSubstr("runnel-predictor train"));
}

INSTANTIATE_TEST_SUITE_P(Predictors, EveryRow, testing::ValuesIn(PredictorNames()),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param, {{"+", "_plus"}});
                         });

// With weights of 0 the network is the mixture; what it says more is a factor, up to e^0.3.
TEST(MlpRow, CorrectsTheMixture) {
  const PredictorRow& mlp = **FindPredictor("mlp");
  const PredictorRow& mixture = **FindPredictor("mixture");
  const Device device(9, 2.5);
  const std::vector<Observation> measured = device.Measure(mlp.ranges(Knowledge(mlp)));
  const auto plain = *mixture.fit(Knowledge(mixture), measured, {});
  for (const auto& [value, factor] :
       {std::pair(0.0f, 1.0), {0.1f, std::exp(0.1)}, {5.0f, std::exp(0.3)}}) {
    const auto corrected = *mlp.fit(Knowledge(mlp, value), measured, {});
    for (const LayerRange& range : AllRanges(Layers())) {
      EXPECT_NEAR(corrected->Seconds(range) / plain->Seconds(range), factor, 1e-6);
    }
  }
}

// A device of twice the times has twice the predictions: the network sees a device's shape, not its
// speed. `accept` hears the first network, `accept+` the mean of all.
TEST(AcceptRow, TimesAreRelativeToTheDevicesSpeed) {
  const Device device(9, 2.5);
  double spoken[2];
  for (const char* name : {"accept", "accept+"}) {
    const PredictorRow& row = **FindPredictor(name);
    PredictorKnowledge knowledge = Knowledge(row);
    // Two networks: their adaptation moves the result, whatever they say.
    knowledge.network->members.push_back(Constant(Layers(), 10, 1));
    const auto once = *row.fit(knowledge, device.Measure(row.ranges(knowledge)), {});
    const auto twice = *row.fit(knowledge, device.Measure(row.ranges(knowledge), 2), {});
    for (const LayerRange& range : AllRanges(Layers()))
      EXPECT_NEAR(twice->Seconds(range) / once->Seconds(range), 2, 1e-4) << name;
    spoken[row.name == "accept+"] = once->Seconds({0, 0});
  }
  EXPECT_GT(spoken[1], spoken[0] * 1.2);
}

TEST(RatioRow, TakesTheRatioToThePlainDevice) {
  const PredictorRow& ratio = **FindPredictor("ratio");
  const PredictorKnowledge knowledge = Knowledge(ratio);
  const Device central(2, 3);  // the third of those that are known
  const auto half = *ratio.fit(knowledge, central.Measure(ratio.ranges(knowledge), 0.5), {});
  EXPECT_NEAR(half->Seconds({1, 3}) / central.Seconds({1, 3}), 0.5, 1e-9);
  const auto reported = *ratio.fit(knowledge, central.Measure(ratio.ranges(knowledge), 0.5),
                                   {{{0, 2}, central.Seconds({0, 2}) * 4}});
  EXPECT_NEAR(reported->Seconds({1, 3}) / central.Seconds({1, 3}), 4, 1e-9);
}

TEST(LutRow, SumsTheLayers) {
  const PredictorRow& lut = **FindPredictor("lut");
  const PredictorKnowledge knowledge = Knowledge(lut);
  const Device device(9, 2.5);
  std::vector<Observation> measured = device.Measure(lut.ranges(knowledge));
  const auto table = *lut.fit(knowledge, measured, {});
  EXPECT_DOUBLE_EQ(table->Seconds({1, 4}), device.Seconds({1, 4}));
  measured.pop_back();
  EXPECT_THAT(std::string(lut.fit(knowledge, measured, {}).status().message()),
              HasSubstr("was not measured by itself"));
}

TEST(PredictorRow, NamesAreThoseOfTheTable) {
  EXPECT_THAT(PredictorNames(),
              testing::ElementsAre("mlp", "accept", "accept+", "mixture", "lut", "ratio", "flops"));
  EXPECT_THAT(std::string(FindPredictor("oracle").status().message()),
              HasSubstr("predictor oracle: is none of mlp, accept"));
}

}  // namespace
}  // namespace runnel::predictor_row_test
