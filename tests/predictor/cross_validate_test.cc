#include "predictor/judge/cross_validate.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/sub_models.h"

namespace runnel::cross_validate_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxMacs = 160'000'000;

// Made-up devices: seconds = sum over kinds of work / speed for it + a cost a layer, times noise.
// Speeds differ by device in one common factor and each by itself.
DeviceProfile SyntheticDevice(int number, const std::string& family, double noise,
                              std::mt19937& random) {
  std::normal_distribution<double> normal(0, 1);
  const double speed = std::exp(normal(random));
  WorkVector cost;
  for (double& one : cost) one = speed * 1e-10 * std::exp(0.3 * normal(random));
  cost[static_cast<size_t>(Work::kOps)] = speed * 2e-6;
  DeviceProfile profile;
  profile.name = absl::StrCat(family, "_", number);
  profile.family = family;
  profile.host = profile.date = profile.numerics_class = "made up";
  profile.batch = 16;
  profile.repetitions = 7;
  for (const char* name : {"mobilenet_v2", "lenet"}) {
    const ModelSpec model = *MakeModel(name);
    const ModelWork work = *ModelWork::Create(model, 16);
    const std::vector<LayerRange> ranges = *ProfileSample(model, kMaxMacs, 20, 1);
    for (const LayerRange& range : ranges) {
      double seconds = 0;
      const WorkVector counts = work.Of(range);
      for (size_t k = 0; k < counts.size(); ++k) seconds += cost[k] * counts[k];
      profile.sub_models.push_back({name, range, 16, seconds * std::exp(noise * normal(random)), 0,
                                    seconds * std::exp(noise * normal(random)), 0});
    }
  }
  return profile;
}

std::vector<DeviceProfile> SyntheticWorld(double noise) {
  std::mt19937 random(20261121);
  std::vector<DeviceProfile> profiles;
  for (int family = 0; family < 4; ++family) {
    for (int number = 0; number < 5; ++number) {
      profiles.push_back(
          SyntheticDevice(number, std::string(1, static_cast<char>('a' + family)), noise, random));
    }
  }
  return profiles;
}

int64_t Judged(const std::vector<DeviceTask>& tasks) {
  int64_t judged = 0;
  for (const DeviceTask& task : tasks) {
    for (const int fold : task.fold) judged += fold != DeviceTask::kNotJudged;
  }
  return judged;
}

TEST(CrossValidate, AdaptsToSyntheticDevices) {
  const std::vector<DeviceProfile> profiles = SyntheticWorld(0.01);
  const absl::StatusOr<std::vector<DeviceTask>> tasks = TasksOf(profiles, kMaxMacs, MakeModel);
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), profiles.size() * 2);
  const absl::StatusOr<Accuracy> accuracy = JudgePredictors(*tasks, {0, 8, 14}, {});
  ASSERT_TRUE(accuracy.ok()) << accuracy.status();
  const auto& all = accuracy->all;
  EXPECT_GT(accuracy->noise_floor.within_5pct(), 0.97);
  EXPECT_GT(all.at("mixture").at(8).within_5pct(), 0.9);
  EXPECT_GT(all.at("mixture").at(8).within_10pct(), 0.97);
  // Nearly all are; one of hundreds may come and go.
  EXPECT_GT(all.at("mixture").at(14).within_5pct(), all.at("mixture").at(8).within_5pct() - 0.005);
  EXPECT_LT(all.at("flops").at(8).within_5pct(), all.at("mixture").at(8).within_5pct() - 0.3);
  // Equal devices are assumed before anything is measured, one ratio after that.
  EXPECT_LT(all.at("ratio").at(0).within_10pct(), all.at("ratio").at(8).within_10pct());
  // Without networks there is no row of AccEPT's; every method is judged by the same sub-models.
  EXPECT_EQ(all.count("accept"), 0u);
  EXPECT_EQ(all.at("mixture").at(0).count, all.at("flops").at(14).count);
  EXPECT_EQ(accuracy->by_configuration.size(), profiles.size());
}

// What was measured of a device, as a representative or as a sample, is never what is judged.
TEST(CrossValidate, JudgesOnlyWhatIsNotKnown) {
  const std::vector<DeviceProfile> profiles = SyntheticWorld(0.01);
  const std::vector<DeviceTask> tasks = *TasksOf(profiles, kMaxMacs, MakeModel);
  for (const DeviceTask& task : tasks) {
    ASSERT_EQ(task.informative.size(), 10u);
    for (int fold = 0; fold < DeviceTask::kFolds; ++fold) {
      std::vector<size_t> known = task.Samples(fold, 1000);
      known.insert(known.end(), task.probes.begin(), task.probes.end());
      EXPECT_GT(task.Samples(fold, 14).size(), 5u);
      for (const size_t i : task.informative) {
        EXPECT_EQ(std::count(known.begin(), known.end(), i),
                  std::count(task.probes.begin(), task.probes.end(), i))
            << "a representative is no sample";
        known.push_back(i);
      }
      for (const size_t i : known) EXPECT_NE(task.fold[i], fold);
    }
  }
  EXPECT_EQ(JudgePredictors(tasks, {14}, {})->all.at("mixture").at(14).count, Judged(tasks));
}

TEST(CrossValidate, EachFoldIsPredictedByItself) {
  const std::vector<DeviceTask> tasks = *TasksOf(SyntheticWorld(0), kMaxMacs, MakeModel);
  const DeviceTask& task = tasks[0];
  const absl::StatusOr<std::vector<double>> folds =
      PredictByFold(task, [&](int fold) -> absl::StatusOr<std::vector<double>> {
        return std::vector<double>(task.ranges.size(), fold + 1);
      });
  ASSERT_TRUE(folds.ok());
  for (size_t i = 0; i < folds->size(); ++i) EXPECT_EQ((*folds)[i], task.fold[i] + 1);
  EXPECT_FALSE(PredictByFold(task, [](int) -> absl::StatusOr<std::vector<double>> {
                 return absl::InternalError("no");
               }).ok());
}

// A pass that was disturbed does not count; the mean of two that agree does.
TEST(CrossValidate, BothPasses) {
  DeviceTask task = (*TasksOf(SyntheticWorld(0), kMaxMacs, MakeModel))[0];
  task.seconds[0] = 1;
  task.second_seconds[0] = 1.21;
  task.seconds[1] = 1;
  task.second_seconds[1] = 3;
  task.seconds[2] = 2;
  task.second_seconds[2] = 0;
  const std::vector<Observation> both = task.BothPasses();
  EXPECT_NEAR(both[0].seconds, 1.1, 1e-12);
  EXPECT_EQ(both[1].seconds, 1);
  EXPECT_NEAR(both[2].seconds, 2, 1e-12);
}

// A device that is in no profile: predicted from all that are known, judged by its own times.
TEST(CrossValidate, DevicesNeverProfiled) {
  std::vector<DeviceProfile> profiles = SyntheticWorld(0.01);
  const std::vector<DeviceProfile> unseen(profiles.end() - 2, profiles.end());
  profiles.resize(profiles.size() - 2);
  const std::vector<DeviceTask> known = *TasksOf(profiles, kMaxMacs, MakeModel);
  const std::vector<DeviceTask> tasks = *TasksOf(unseen, kMaxMacs, MakeModel);
  const absl::StatusOr<Accuracy> accuracy = JudgeUnseen(known, tasks, {0, 8}, {});
  ASSERT_TRUE(accuracy.ok()) << accuracy.status();
  EXPECT_EQ(accuracy->by_configuration.size(), 2u);
  EXPECT_GT(accuracy->all.at("mixture").at(8).within_10pct(), 0.97);
  EXPECT_GT(accuracy->all.at("mixture").at(8).within_5pct(),
            accuracy->all.at("flops").at(8).within_5pct() + 0.3);
  const int64_t expected = Judged(tasks);
  for (const char* method : {"mixture", "flops", "ratio"})
    EXPECT_EQ(accuracy->all.at(method).at(0).count, expected) << method;
  EXPECT_EQ(accuracy->noise_floor.count, expected);
  // With itself among the known ones it would be no test.
  EXPECT_EQ(JudgeUnseen(known, known, {8}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  // Its own kind among the known ones must help: these are of family "d".
  std::vector<DeviceTask> others;
  for (const DeviceTask& task : known) {
    if (task.family != tasks[0].family) others.push_back(task);
  }
  const absl::StatusOr<Accuracy> without = JudgeUnseen(others, tasks, {0}, {});
  ASSERT_TRUE(without.ok());
  EXPECT_GE(accuracy->all.at("mixture").at(0).within_5pct() + 0.05,
            without->all.at("mixture").at(0).within_5pct());
}

TEST(CrossValidate, RowsOfNetworks) {
  const std::vector<DeviceProfile> profiles = SyntheticWorld(0);
  const std::vector<DeviceTask> tasks = *TasksOf(profiles, kMaxMacs, MakeModel);
  std::vector<TaskPrediction> networks;
  for (const DeviceTask& task : tasks) {
    TaskPrediction one{"accept", task.configuration, task.model, task.batch, 2, task.seconds};
    for (double& seconds : one.seconds) seconds *= 1.07;
    networks.push_back(one);
  }
  const absl::StatusOr<std::vector<TaskPrediction>> read =
      ParsePredictions(FormatPredictions(networks));
  ASSERT_TRUE(read.ok()) << read.status();
  const absl::StatusOr<Accuracy> accuracy = JudgePredictors(tasks, {2}, *read);
  ASSERT_TRUE(accuracy.ok());
  EXPECT_EQ(accuracy->all.at("accept").at(2).within_5pct(), 0);
  EXPECT_EQ(accuracy->all.at("accept").at(2).within_10pct(), 1);
}

TEST(CrossValidate, Figure4) {
  const std::vector<DeviceTask> tasks = *TasksOf(SyntheticWorld(0), kMaxMacs, MakeModel);
  const absl::StatusOr<std::vector<LayerError>> errors =
      RatioLayerErrors(tasks[2], tasks[0], {0, 0});
  ASSERT_TRUE(errors.ok()) << errors.status();
  ASSERT_EQ(errors->size(), 20u);
  EXPECT_NEAR((*errors)[0].estimated_seconds, (*errors)[0].measured_seconds, 1e-12);
  EXPECT_NE((*errors)[5].estimated_seconds, (*errors)[5].measured_seconds);
  EXPECT_FALSE(RatioLayerErrors(tasks[2], tasks[0], {0, 18}).ok());
}

TEST(DeviceTask, SaysWhatAProfileLacks) {
  std::mt19937 random(1);
  DeviceProfile profile = SyntheticDevice(0, "a", 0, random);
  profile.sub_models[0].model = "no_model";
  EXPECT_THAT(std::string(TasksOf({profile}, kMaxMacs, MakeModel).status().message()),
              HasSubstr("no_model"));
  profile = SyntheticDevice(0, "a", 0, random);
  profile.sub_models[0].range.last_layer = 20;
  EXPECT_THAT(std::string(TasksOf({profile}, kMaxMacs, MakeModel).status().message()),
              HasSubstr("has no layer 20"));
  profile = SyntheticDevice(0, "a", 0, random);
  profile.sub_models.erase(profile.sub_models.begin(), profile.sub_models.begin() + 40);
  EXPECT_THAT(std::string(TasksOf({profile}, kMaxMacs, MakeModel).status().message()),
              HasSubstr("were not measured"));
}

TEST(Predictions, SaysWhatIsWrong) {
  EXPECT_FALSE(ParsePredictions("").ok());
  EXPECT_FALSE(ParsePredictions("runnel-predictions 1\naccept a b 16 2\n").ok());
  EXPECT_FALSE(ParsePredictions("runnel-predictions 1\naccept a b 0 2 1\n").ok());
  EXPECT_FALSE(ParsePredictions("runnel-predictions 1\naccept a b 16 2 nan\n").ok());
  EXPECT_TRUE(ParsePredictions("runnel-predictions 1\naccept a b 16 2 0.5\n").ok());
}

}  // namespace
}  // namespace runnel::cross_validate_test
