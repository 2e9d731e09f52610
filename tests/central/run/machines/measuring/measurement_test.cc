// What devices are asked for and what counts as an answer.

#include "central/run/machines/measuring/measurement.h"

#include <algorithm>
#include <limits>
#include <map>

#include "central/planning/measured/layer_profile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/central/run/machines/machine_effects.h"
#include "tests/central/scripted_planner.h"

namespace runnel::measurement_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MeasurementOptions Options(const std::string& model, std::vector<LayerRange> sub_models = {}) {
  MeasurementOptions options;
  options.request.model = MakeModel(model).value();
  options.request.burst_ms = 20;
  options.sub_models = std::move(sub_models);
  return options;
}

ProfileReport Report(size_t ranges, double seconds = 0.001) {
  ProfileReport report;
  report.layer_seconds.assign(ranges, seconds);
  report.processor_share = 0.5;
  return report;
}

class MeasurementTest : public ::testing::Test {
 protected:
  void Begin(MeasurementOptions options, std::vector<int> devices) {
    planner_.layers = options.request.model.layer_count();
    measurement_.emplace(std::move(options), &planner_);
    measurement_->Begin(std::move(devices), 40, Generation(), roster_, effects_);
  }
  // The requests since it was asked last.
  std::vector<std::pair<int64_t, ProfileRequest>> Requests() {
    auto requests = MessagesOf<ProfileRequest>(effects_);
    effects_.clear();
    return requests;
  }
  // Whether the device's answer counts.
  bool Answer(int device, size_t ranges, double seconds = 0.001) {
    const absl::StatusOr<bool> counts =
        measurement_->AddReport(device, Report(ranges, seconds), roster_, effects_);
    EXPECT_TRUE(counts.ok()) << counts.status();
    return counts.value_or(false);
  }

  Roster roster_ = FullRoster(3);
  ScriptedPlanner planner_;
  std::optional<Measurement> measurement_;
  RunEffects effects_;
};

TEST_F(MeasurementTest, SubModelsAreMeasuredOnOneDeviceAfterTheOther) {
  const std::vector<LayerRange> ranges = {{0, 0}, {1, 4}};
  Begin(Options("lenet", ranges), {2, 0});
  auto requests = Requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].first, 2);
  EXPECT_EQ(requests[0].second.ranges, ranges);
  EXPECT_THAT(requests[0].second.in_flight, IsEmpty());
  EXPECT_FALSE(Answer(0, 2)) << "it is not its turn";
  EXPECT_TRUE(Answer(2, 2, 0.5));
  ASSERT_EQ(RecordsOf<SubModelsMeasured>(effects_).size(), 1u);
  const SubModelsMeasured record = RecordsOf<SubModelsMeasured>(effects_)[0];
  EXPECT_EQ(record.step, 40);
  EXPECT_EQ(record.name, "w2");
  EXPECT_EQ(record.sub_models[1].range, ranges[1]);
  EXPECT_DOUBLE_EQ(measurement_->times()[2].Seconds({0, 5}), 2.5) << "what the planner predicts";
  EXPECT_TRUE(measurement_->times()[0].empty());
  EXPECT_TRUE(measurement_->under_way());
  EXPECT_EQ(Requests()[0].first, 0);
  EXPECT_TRUE(Answer(0, 2));
  EXPECT_FALSE(measurement_->under_way());
  EXPECT_FALSE(Answer(0, 2)) << "said twice";
}

TEST_F(MeasurementTest, WhoAnsweredForItsLayersAndIsLostIsNotAwaitedForParts) {
  Begin(Options("vgg11"), {0, 1});
  const auto layers = static_cast<size_t>(MakeModel("vgg11").value().layer_count());
  EXPECT_TRUE(Answer(0, layers));
  EXPECT_FALSE(measurement_->SkipDevice(0, roster_, effects_));
  Requests();
  EXPECT_TRUE(Answer(1, layers));
  const auto requests = Requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].first, 1);
  EXPECT_TRUE(Answer(1, requests[0].second.ranges.size()));
  EXPECT_FALSE(measurement_->under_way());
}

// Four workers on hosts of their own, three of them alike.
class AlikeTest : public MeasurementTest {
 protected:
  AlikeTest() {
    RosterOptions options;
    options.dialling_workers = 4;
    options.recipe = "fp32";
    roster_ = Roster(options);
    RunEffects joined;
    for (int i = 0; i < 4; ++i) {
      WorkerHello hello = SampleHello("w" + std::to_string(i));
      hello.data_address = "10.0.0." + std::to_string(i + 1) + ":7000";
      hello.device_class = i == 3 ? "" : "board x 4, 1 thread";
      EXPECT_TRUE(roster_.Join(ConnectionId(i), hello, false, joined).ok());
    }
  }
  const std::vector<LayerRange> ranges_ = {{0, 0}, {1, 4}};
};

TEST_F(AlikeTest, OneOfAClassIsMeasuredAndTheOthersAreCheckedAtOnce) {
  Begin(Options("lenet", ranges_), {0, 1, 2, 3});
  EXPECT_EQ(Requests()[0].second.ranges, ranges_);
  ProfileReport report = Report(2, 0.5);
  report.layer_seconds = {0.5, 2};
  EXPECT_TRUE(measurement_->AddReport(0, report, roster_, effects_).value());
  auto requests = Requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].first, 3) << "of no class";
  EXPECT_EQ(requests[0].second.ranges, ranges_);
  EXPECT_TRUE(Answer(3, 2));
  requests = Requests();
  ASSERT_EQ(requests.size(), 2u) << "on two hosts";
  for (const auto& [id, request] : requests)
    EXPECT_EQ(request.ranges, (std::vector<LayerRange>{{1, 4}})) << "the longest";
  EXPECT_TRUE(Answer(2, 1, 2.2));
  const auto measured = RecordsOf<SubModelsMeasured>(effects_);
  ASSERT_EQ(measured.size(), 1u);
  EXPECT_DOUBLE_EQ(measured[0].sub_models[0].seconds, 0.55);
  EXPECT_DOUBLE_EQ(measured[0].sub_models[1].seconds, 2.2);
  EXPECT_TRUE(Answer(1, 1, 1.9));
  EXPECT_FALSE(measurement_->under_way());
  EXPECT_FALSE(measurement_->times()[1].empty());
}

TEST_F(AlikeTest, WhoIsNotAsItsClassIsMeasuredInFull) {
  Begin(Options("lenet", ranges_), {0, 1, 2});
  EXPECT_TRUE(Answer(0, 2, 1));
  Requests();
  EXPECT_TRUE(Answer(1, 1, 1.3)) << "a throttled one";
  EXPECT_THAT(Requests(), IsEmpty()) << "the other check is still out";
  EXPECT_TRUE(Answer(2, 1, 1));
  const auto requests = Requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].first, 1);
  EXPECT_EQ(requests[0].second.ranges, ranges_);
  EXPECT_DOUBLE_EQ(measurement_->Progress(), 2.0 / 3);
  EXPECT_TRUE(Answer(1, 2, 1.3));
  EXPECT_FALSE(measurement_->under_way());
}

TEST_F(AlikeTest, IfTheFirstOfAClassIsLostTheNextOneTakesItsPlace) {
  Begin(Options("lenet", ranges_), {0, 1, 2});
  RunEffects lost;
  roster_.Leave(ConnectionId(1), lost);
  EXPECT_FALSE(measurement_->SkipDevice(1, roster_, effects_)) << "it would have been asked later";
  Requests();
  roster_.Leave(ConnectionId(0), lost);
  EXPECT_TRUE(measurement_->SkipDevice(0, roster_, effects_));
  const auto requests = Requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].first, 2);
  EXPECT_EQ(requests[0].second.ranges, ranges_);
  EXPECT_TRUE(Answer(2, 2));
  EXPECT_FALSE(measurement_->under_way());
}

TEST_F(MeasurementTest, ManyPartsAreMeasuredInBurstsAsLongAsThoseOfLayers) {
  Begin(Options("lenet"), {0, 1});
  Answer(0, 6);
  Requests();
  Answer(1, 6);
  const auto requests = Requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].second.ranges.size(), 21u);
  EXPECT_EQ(requests[0].second.burst_ms, 20);
}

TEST_F(MeasurementTest, LayersAreMeasuredOnAllAtOnceThenParts) {
  Begin(Options("vgg11"), {0, 1, 2});
  auto requests = Requests();
  ASSERT_EQ(requests.size(), 3u);
  const size_t layers = requests[0].second.ranges.size();
  EXPECT_EQ(requests[0].second.burst_ms, 20);
  EXPECT_THAT(requests[0].second.in_flight, Each(1));
  EXPECT_TRUE(Answer(1, layers));
  EXPECT_DOUBLE_EQ(measurement_->times()[1].LayerSeconds()[0], 0.001);
  EXPECT_TRUE(Answer(0, layers));
  EXPECT_THAT(Requests(), IsEmpty()) << "one still measures its layers";
  EXPECT_TRUE(Answer(2, layers));
  requests = Requests();
  ASSERT_EQ(requests.size(), 3u);
  const std::vector<LayerRange> parts = PartsOf(static_cast<int>(layers), 3);
  EXPECT_EQ(requests[0].second.ranges, parts);
  const auto count = static_cast<double>(parts.size());
  for (const auto& [device, request] : requests) {
    const double alone_ms = std::max(20.0, 75 / count);
    EXPECT_DOUBLE_EQ(request.burst_ms, device == 0 ? alone_ms : 150 / count)
        << "two of them share a host, which is not central's";
  }
  EXPECT_EQ(requests[0].second.in_flight[0], InFlightOf(parts[0], static_cast<int>(layers), 3));
  for (const int device : {0, 1, 2}) EXPECT_TRUE(Answer(device, parts.size(), 9));
  EXPECT_DOUBLE_EQ(measurement_->times()[1].Seconds(parts[0]), 9) << "as long as its part took";
  EXPECT_FALSE(measurement_->under_way());
}

TEST_F(MeasurementTest, StagesThatDrainEachStepAreMeasuredOneMicroBatchAtATime) {
  MeasurementOptions options = Options("vgg11");
  options.pipelined = false;
  Begin(options, {0});
  const size_t layers = Requests()[0].second.ranges.size();
  EXPECT_TRUE(Answer(0, layers));
  EXPECT_THAT(Requests()[0].second.in_flight, Each(1));
}

TEST_F(MeasurementTest, WhoCannotMeasureItsLayersIsNotAskedForParts) {
  Begin(Options("vgg11"), {0, 1});
  const size_t layers = Requests()[0].second.ranges.size();
  EXPECT_FALSE(measurement_->SkipDevice(2, roster_, effects_)) << "was not asked";
  EXPECT_TRUE(Answer(0, layers));
  EXPECT_TRUE(measurement_->SkipDevice(1, roster_, effects_));
  EXPECT_THAT(ReceiversOf<ProfileRequest>(effects_), ElementsAre(0));
}

// Before the first plan; later on a device has changed, and what it was does not count.
TEST_F(MeasurementTest, WhatWasMeasuredInAnEarlierRunWillDoOnlyTheFirstTime) {
  Begin(Options("vgg11"), {0, 1});
  const auto requests = Requests();
  EXPECT_TRUE(requests[0].second.accepts_kept);
  const size_t layers = requests[0].second.ranges.size();
  ProfileReport kept = Report(layers);
  kept.kept = true;
  EXPECT_TRUE(measurement_->AddReport(1, kept, roster_, effects_).value());
  EXPECT_TRUE(Answer(0, layers));
  EXPECT_THAT(measurement_->kept(), ElementsAre(1));
  const size_t parts = Requests()[0].second.ranges.size();
  for (const int device : {0, 1}) EXPECT_TRUE(Answer(device, parts));
  measurement_->Begin({1}, 50, Generation(), roster_, effects_);
  EXPECT_FALSE(Requests()[0].second.accepts_kept);
  EXPECT_THAT(measurement_->kept(), IsEmpty());
}

// It answers to what it was asked for when another plan held.
TEST_F(MeasurementTest, AnAnswerOfAnotherPlanCountsForNothing) {
  Begin(Options("vgg11"), {0, 1});
  const size_t layers = Requests()[0].second.ranges.size();
  measurement_->Cancel();
  EXPECT_FALSE(measurement_->under_way());
  EXPECT_FALSE(Answer(0, layers)) << "it is not waited for";
  measurement_->Begin({0, 1}, 50, Generation(2), roster_, effects_);
  EXPECT_EQ(Requests()[0].second.generation, Generation(2));
  EXPECT_FALSE(Answer(0, layers));
  ProfileReport report = Report(layers);
  report.generation = Generation(2);
  EXPECT_TRUE(measurement_->AddReport(0, report, roster_, effects_).value());
}

// What a worker measured beside others of its host says nothing of it alone.
TEST_F(MeasurementTest, WorkersOfCentralsHostAreToldHowManyMeasureBesideThem) {
  RosterOptions options;
  options.local_workers = 2;
  options.dialling_workers = 1;
  options.recipe = "fp32";
  roster_ = Roster(options);
  RunEffects joined;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        roster_.Join(ConnectionId(i), SampleHello("w" + std::to_string(i)), i < 2, joined).ok());
  }
  Begin(Options("vgg11"), {0, 1, 2});
  const auto requests = Requests();
  EXPECT_EQ(requests[0].second.neighbours, 1);
  EXPECT_EQ(requests[1].second.neighbours, 1);
  EXPECT_EQ(requests[2].second.neighbours, 0) << "on a host of its own";
}

// What differs between workers of one host that are alike is chance.
TEST_F(MeasurementTest, WorkersOfCentralsHostThatAreAlikeTakeTheMean) {
  RosterOptions options;
  options.local_workers = 3;
  options.dialling_workers = 1;
  options.recipe = "fp32";
  roster_ = Roster(options);
  RunEffects joined;
  for (int i = 0; i < 4; ++i) {
    WorkerHello hello = SampleHello("w" + std::to_string(i));
    hello.device_class = i == 2 ? "another" : "one";
    EXPECT_TRUE(roster_.Join(ConnectionId(i), hello, i < 3, joined).ok());
  }
  MeasurementOptions all = Options("vgg11");
  Begin(all, {0, 1, 2, 3});
  const auto layers = static_cast<size_t>(all.request.model.layer_count());
  for (const int device : {0, 1, 2, 3}) EXPECT_TRUE(Answer(device, layers));
  const std::vector<LayerRange> parts = PartsOf(static_cast<int>(layers), 4);
  const auto answer = [&](int device, double seconds, double share, const char* backend = "cpu") {
    ProfileReport report = Report(parts.size(), seconds);
    report.processor_share = share;
    report.backend = backend;
    EXPECT_TRUE(*measurement_->AddReport(device, report, roster_, effects_));
  };
  answer(0, 2, 0.5);
  answer(1, 3, 0.95);
  answer(2, 7, 1);
  EXPECT_DOUBLE_EQ(measurement_->times()[0].Seconds(parts[0]), 2) << "one is still measuring";
  answer(3, 9, 1);
  // A second and three of a processor: nine tenths are a whole one.
  EXPECT_DOUBLE_EQ(measurement_->times()[0].Seconds(parts[0]), 4);
  EXPECT_DOUBLE_EQ(measurement_->times()[1].Seconds(parts[0]), 2);
  EXPECT_DOUBLE_EQ(measurement_->times()[2].Seconds(parts[0]), 7) << "of another class";
  EXPECT_DOUBLE_EQ(measurement_->times()[3].Seconds(parts[0]), 9) << "on a host of its own";

  // One has measured with the GPU, which the other found taken.
  measurement_->Begin({0, 1}, 50, Generation(2), roster_, effects_);
  const auto again = [&](int device, size_t ranges, double seconds, const char* backend) {
    ProfileReport report = Report(ranges, seconds);
    report.generation = Generation(2);
    report.backend = backend;
    return measurement_->AddReport(device, report, roster_, effects_).value();
  };
  for (const int device : {0, 1}) again(device, layers, 1, device == 0 ? "cpu,opencl" : "cpu");
  again(0, PartsOf(static_cast<int>(layers), 4).size(), 2, "cpu,opencl");
  EXPECT_TRUE(again(1, PartsOf(static_cast<int>(layers), 4).size(), 6, "cpu"));
  EXPECT_DOUBLE_EQ(measurement_->times()[0].Seconds(parts[0]), 2);
  EXPECT_DOUBLE_EQ(measurement_->times()[1].Seconds(parts[0]), 6);
}

// Four workers of central's host on two processors, and one elsewhere.
TEST_F(MeasurementTest, OfCentralsHostOnlyWhoHasAProcessorMeasures) {
  RosterOptions options;
  options.local_workers = 4;
  options.dialling_workers = 1;
  options.recipe = "fp32";
  roster_ = Roster(options);
  RunEffects joined;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(
        roster_.Join(ConnectionId(i), SampleHello("w" + std::to_string(i)), i < 4, joined).ok());
  }
  MeasurementOptions two_at_once = Options("vgg11");
  two_at_once.local_at_once = 2;
  two_at_once.request.burst_ms = 1;
  Begin(two_at_once, {0, 1, 2, 3, 4});
  std::map<int64_t, double> bursts_ms;
  const auto asked = [this, &bursts_ms] {
    std::vector<int64_t> devices;
    for (const auto& [device, request] : Requests()) {
      EXPECT_EQ(request.neighbours, device < 4 ? 1 : 0);
      bursts_ms[device] = request.burst_ms;
      devices.push_back(device);
    }
    return devices;
  };
  const auto layers = static_cast<size_t>(MakeModel("vgg11").value().layer_count());
  EXPECT_THAT(asked(), ElementsAre(0, 1, 4));
  EXPECT_FALSE(Answer(2, layers)) << "it was not asked yet";
  EXPECT_TRUE(Answer(1, layers));
  EXPECT_THAT(asked(), ElementsAre(2));
  EXPECT_TRUE(Answer(4, layers));
  EXPECT_THAT(asked(), IsEmpty());
  EXPECT_TRUE(measurement_->SkipDevice(2, roster_, effects_));
  EXPECT_THAT(asked(), ElementsAre(3));
  EXPECT_TRUE(Answer(0, layers));
  EXPECT_TRUE(Answer(3, layers));
  // The parts, without the one that was skipped.
  const size_t parts = PartsOf(static_cast<int>(layers), 5).size();
  EXPECT_THAT(asked(), ElementsAre(1, 4, 0));
  EXPECT_DOUBLE_EQ(bursts_ms[1] * static_cast<double>(parts), 150) << "two at the same time";
  EXPECT_DOUBLE_EQ(bursts_ms[4] * static_cast<double>(parts), 75);
  EXPECT_TRUE(Answer(0, parts));
  EXPECT_THAT(asked(), ElementsAre(3));
  for (const int device : {1, 3, 4}) EXPECT_TRUE(Answer(device, parts));
  EXPECT_FALSE(measurement_->under_way());
}

// Two workers of central's host on one processor, and one elsewhere.
class SecondTest : public MeasurementTest {
 protected:
  SecondTest() {
    RosterOptions options;
    options.local_workers = 2;
    options.dialling_workers = 1;
    options.recipe = "fp32";
    roster_ = Roster(options);
    RunEffects joined;
    for (int i = 0; i < 3; ++i) {
      WorkerHello hello = SampleHello("w" + std::to_string(i));
      hello.device_class = "one";
      EXPECT_TRUE(roster_.Join(ConnectionId(i), hello, i < 2, joined).ok());
    }
  }
  // Until the second times are asked for.
  void BeginAndAnswer() {
    MeasurementOptions options = Options("vgg11");
    options.local_at_once = 1;
    options.second_burst_ms = 25;
    layers_ = options.request.model.layer_count();
    Begin(std::move(options), {0, 1, 2});
    for (const size_t ranges : {static_cast<size_t>(layers_), PartsOf(layers_, 3).size()}) {
      for (const int device : {0, 2, 1}) {
        EXPECT_FALSE(measurement_->is_second());
        Requests();
        EXPECT_TRUE(Answer(device, ranges, 1));
      }
    }
  }
  int layers_ = 0;
};

TEST_F(SecondTest, WorkersOfCentralsHostAllMeasureAtTheSameTime) {
  BeginAndAnswer();
  EXPECT_TRUE(measurement_->is_second());
  const auto requests = Requests();
  ASSERT_EQ(requests.size(), 2u) << "the third has a host of its own";
  int next = 0;
  for (const auto& [device, request] : requests) {
    ASSERT_EQ(request.ranges.size(), 1u);
    EXPECT_EQ(request.ranges[0].first_layer, next) << "each other layers";
    next = request.ranges[0].last_layer + 1;
    EXPECT_EQ(request.neighbours, 1);
    EXPECT_EQ(request.burst_ms, 25);
    EXPECT_FALSE(request.accepts_kept);
    EXPECT_THAT(request.cost_codecs, IsEmpty());
  }
  EXPECT_EQ(next, layers_);
}

TEST_F(SecondTest, WhatTheyAgreeOnScalesAllOfTheirTimes) {
  BeginAndAnswer();
  const auto requests = Requests();
  const std::vector<DeviceTimes> first = measurement_->times();
  for (const auto& [device, request] : requests) {
    const double seconds = first[device].Seconds(request.ranges[0]);
    // A fifth more of the processor, of which there is half as much.
    ProfileReport report = Report(1, 1.2 * seconds * 2);
    report.processor_share = 0.25;
    EXPECT_TRUE(*measurement_->AddReport(static_cast<int>(device), report, roster_, effects_));
  }
  EXPECT_FALSE(measurement_->under_way());
  for (const size_t device : {0, 1}) {
    EXPECT_NEAR(measurement_->times()[device].Sum() / first[device].Sum(), 1.2, 1e-9);
  }
  EXPECT_EQ(measurement_->times()[2], first[2]);
}

// It has answered for its layers, and fails in its parts.
TEST_F(SecondTest, WhoIsBarredIsNotMeasuredAgain) {
  MeasurementOptions options = Options("vgg11");
  options.second_burst_ms = 25;
  const auto layers = static_cast<size_t>(options.request.model.layer_count());
  Begin(std::move(options), {0, 1, 2});
  for (const int device : {0, 1, 2}) EXPECT_TRUE(Answer(device, layers));
  const size_t parts = PartsOf(static_cast<int>(layers), 3).size();
  EXPECT_TRUE(Answer(1, parts));
  EXPECT_TRUE(Answer(2, parts));
  Requests();
  ASSERT_TRUE(roster_.Bar(0));
  EXPECT_TRUE(measurement_->SkipDevice(0, roster_, effects_));
  EXPECT_TRUE(measurement_->is_second());
  EXPECT_THAT(ReceiversOf<ProfileRequest>(effects_), ElementsAre(1));
}

TEST_F(SecondTest, WhoIsLostIsNotWaitedFor) {
  BeginAndAnswer();
  const auto requests = Requests();
  const DeviceTimes first = measurement_->times()[1];
  EXPECT_TRUE(measurement_->SkipDevice(0, roster_, effects_));
  EXPECT_TRUE(measurement_->under_way());
  EXPECT_TRUE(Answer(1, 1, first.Seconds(requests[1].second.ranges[0])));
  EXPECT_FALSE(measurement_->under_way());
  EXPECT_EQ(measurement_->times()[1], first);
}

TEST_F(SecondTest, IsForFirstPlansOnly) {
  BeginAndAnswer();
  measurement_->Begin({0, 1}, 50, Generation(2), roster_, effects_);
  Requests();
  for (const size_t ranges : {static_cast<size_t>(layers_), PartsOf(layers_, 3).size()}) {
    for (const int device : {0, 1}) {
      ProfileReport report = Report(ranges);
      report.generation = Generation(2);
      EXPECT_TRUE(*measurement_->AddReport(device, report, roster_, effects_));
    }
  }
  EXPECT_FALSE(measurement_->under_way());
}

TEST_F(MeasurementTest, ItsProgressIsThatOfAllDevicesAndPhases) {
  Begin(Options("vgg11"), {0, 1});
  const size_t layers = Requests()[0].second.ranges.size();
  EXPECT_DOUBLE_EQ(measurement_->Progress(), 0);
  measurement_->AddProgress(0, 0.5);
  measurement_->AddProgress(2, 0.9);  // was not asked
  EXPECT_DOUBLE_EQ(measurement_->Progress(), 0.125);
  EXPECT_TRUE(Answer(1, layers));
  EXPECT_DOUBLE_EQ(measurement_->Progress(), 0.375);
  EXPECT_TRUE(Answer(0, layers));
  EXPECT_DOUBLE_EQ(measurement_->Progress(), 0.5) << "layers are done, parts are still to come";
  const size_t parts = Requests()[0].second.ranges.size();
  for (const int device : {0, 1}) EXPECT_TRUE(Answer(device, parts));
  EXPECT_DOUBLE_EQ(measurement_->Progress(), 1);
}

TEST_F(MeasurementTest, NobodyLeftIsTheEnd) {
  Begin(Options("vgg11"), {0});
  EXPECT_TRUE(measurement_->SkipDevice(0, roster_, effects_));
  EXPECT_FALSE(measurement_->under_way());
}

TEST_F(MeasurementTest, WrongAnswersAreErrors) {
  const std::vector<LayerRange> ranges = {{0, 0}, {1, 4}};
  Begin(Options("lenet", ranges), {0});
  const auto error = [this](const ProfileReport& report) {
    return std::string(measurement_->AddReport(0, report, roster_, effects_).status().message());
  };
  EXPECT_THAT(error(Report(3)), HasSubstr("does not have the ranges asked for"));
  EXPECT_THAT(error(Report(2, 0)), HasSubstr("is not a time"));
  EXPECT_THAT(error(Report(2, std::numeric_limits<double>::infinity())),
              HasSubstr("is not a time"));
  EXPECT_TRUE(measurement_->under_way());
}

}  // namespace
}  // namespace runnel::measurement_test
