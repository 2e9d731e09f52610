#include "predictor/train/train_networks.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/judge/cross_validate.h"
#include "predictor/profiles/sub_models.h"
#include "predictor/train/cross_validate_torch.h"

namespace runnel::train_networks_test {
namespace {

// Devices of three families whose kinds of work cost differently.
std::vector<DeviceTask> Tasks() {
  std::mt19937 random(20261123);
  std::normal_distribution<double> normal(0, 1);
  const ModelSpec model = *MakeModel("lenet");
  const ModelWork work = *ModelWork::Create(model, 16);
  const std::vector<LayerRange> ranges = *ProfileSample(model, kMaxProfiledMacs, 20, 1);
  std::vector<DeviceProfile> profiles;
  for (int i = 0; i < 6; ++i) {
    WorkVector cost;
    const double speed = std::exp(normal(random));
    for (double& one : cost) one = speed * 1e-10 * std::exp(0.3 * normal(random));
    cost[static_cast<size_t>(Work::kOps)] = speed * 2e-6;
    DeviceProfile profile;
    profile.name = absl::StrCat("device_", i);
    profile.family = absl::StrCat("family_", i / 2);
    profile.host = profile.date = profile.numerics_class = "made up";
    profile.batch = 16;
    profile.repetitions = 7;
    for (const LayerRange& range : ranges) {
      double seconds = 0;
      const WorkVector counts = work.Of(range);
      for (size_t k = 0; k < counts.size(); ++k) seconds += cost[k] * counts[k];
      profile.sub_models.push_back({"lenet", range, 16, seconds * std::exp(0.01 * normal(random)),
                                    0, seconds * std::exp(0.01 * normal(random)), 0});
    }
    profiles.push_back(std::move(profile));
  }
  return *TasksOf(profiles, kMaxProfiledMacs, MakeModel);
}

bool All(const DeviceTask&) { return true; }

TEST(TrainNetworks, RowsThatCentralCanRead) {
  const TrainingSet set = *TrainingSet::Create(Tasks());
  const absl::StatusOr<PredictorNetwork> mlp = TrainMlpRow(set, All);
  ASSERT_TRUE(mlp.ok()) << mlp.status();
  EXPECT_EQ(mlp->members.size(), 5u);
  EXPECT_EQ(*ParseNetwork(FormatNetwork(*mlp)), *mlp);
  EXPECT_EQ(*TrainMlpRow(set, All), *mlp);
  const absl::StatusOr<PredictorNetwork> accept = TrainAcceptRow(set, "lenet", All);
  ASSERT_TRUE(accept.ok()) << accept.status();
  EXPECT_EQ(accept->model, "lenet");
  EXPECT_EQ(accept->members.size(), 5u);
  EXPECT_EQ(*ParseNetwork(FormatNetwork(*accept)), *accept);
  for (const char* name : {"mlp", "accept", "accept+"}) {
    const PredictorRow& row = **FindPredictor(name);
    PredictorKnowledge knowledge = KnowledgeFor(set.tasks[0], set.tasks, set.devices, All);
    knowledge.network = row.network == mlp->row ? *mlp : *accept;
    EXPECT_TRUE(PredictWithRow(row, knowledge, set.tasks[0], 2).ok());
  }
}

TEST(TrainNetworks, NeedsFamiliesToLearnFrom) {
  const TrainingSet set = *TrainingSet::Create(Tasks());
  const auto one_family = [](const DeviceTask& task) { return task.family == "family_1"; };
  EXPECT_EQ(TrainMlpRow(set, one_family).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(TrainAcceptRow(set, "vgg11", All).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// What a row learned of a device that is left out would show: the samples of a network do not
// depend on it.
TEST(TrainNetworks, WhatIsLeftOutIsNotLearnedFrom) {
  std::vector<DeviceTask> tasks = Tasks();
  const auto others = [](const DeviceTask& task) { return task.family != "family_2"; };
  const std::vector<MlpSample> before = *MlpTrainingSamples(*TrainingSet::Create(tasks), others);
  ASSERT_FALSE(before.empty());
  for (DeviceTask& task : tasks) {
    if (others(task)) continue;
    for (double& seconds : task.seconds) seconds *= 3;
  }
  const TrainingSet changed = *TrainingSet::Create(tasks);
  const std::vector<MlpSample> after = *MlpTrainingSamples(changed, others);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].encoding, before[i].encoding);
    EXPECT_EQ(after[i].hardware, before[i].hardware);
    EXPECT_EQ(after[i].target, before[i].target);
  }
  EXPECT_EQ(AcceptTrainingSamples(changed, "lenet", others).size(),
            AcceptTrainingSamples(changed, "lenet", All).size() * 2 / 3);
}

TEST(TrainNetworks, CrossValidatesTheRowsWithNetworks) {
  const std::vector<DeviceTask> tasks = Tasks();
  const absl::StatusOr<std::vector<TaskPrediction>> predictions =
      CrossValidate(tasks, {2}, LeaveOut::kFamily, [](const std::string&) {});
  ASSERT_TRUE(predictions.ok()) << predictions.status();
  EXPECT_EQ(predictions->size(), tasks.size() * 3);
  const absl::StatusOr<Accuracy> accuracy =
      JudgePredictors(tasks, {2}, *predictions, LeaveOut::kFamily);
  ASSERT_TRUE(accuracy.ok()) << accuracy.status();
  EXPECT_EQ(accuracy->all.at("mlp").at(2).count, accuracy->all.at("mixture").at(2).count);
  EXPECT_GT(accuracy->all.at("mlp").at(2).within_10pct(), 0.8);
  for (const char* row : {"accept", "accept+"}) {
    EXPECT_EQ(accuracy->all.at(row).at(2).count, accuracy->all.at("mixture").at(2).count);
  }
}

}  // namespace
}  // namespace runnel::train_networks_test
