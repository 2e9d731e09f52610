#include "predictor/train/train_networks.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "predictor/train/train_torch.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kMembers = 5;

// Small, noisy and short: the mixture's error is mostly noise, and a larger network learns it.
MlpTraining MlpRowTraining(int member) {
  MlpTraining training;
  training.hidden_1 = training.hidden_2 = training.hidden_3 = 24;
  training.epochs = 12;
  training.batch = 64;
  training.learning_rate = 2e-3;
  training.input_noise = 0.7;
  training.starts_at_zero = true;
  training.seed = static_cast<uint64_t>(member) + 1;
  return training;
}

// Much decay: of 40 measured ranges a device a network learns the noise too.
MlpTraining AcceptTraining(int member) {
  MlpTraining training;
  training.hidden_1 = training.hidden_2 = training.hidden_3 = 32;
  training.epochs = 100;
  training.batch = 64;
  training.weight_decay = 0.5;
  training.seed = static_cast<uint64_t>(member) + 1;
  return training;
}

}  // namespace

absl::StatusOr<PredictorNetwork> TrainMlpRow(const TrainingSet& set, const MayLearnFn& may_learn) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<MlpSample> samples, MlpTrainingSamples(set, may_learn));
  if (samples.empty()) {
    return absl::FailedPreconditionError(
        "profiles: the row mlp learns from at least two families of devices with a model in "
        "common");
  }
  PredictorNetwork network{"mlp", "any", {}};
  for (int member = 0; member < kMembers; ++member) {
    RUNNEL_ASSIGN_OR_RETURN(Mlp mlp, TrainMlp(samples, MlpRowTraining(member)));
    network.members.push_back(std::move(mlp));
  }
  return network;
}

absl::StatusOr<PredictorNetwork> TrainAcceptRow(const TrainingSet& set, const std::string& model,
                                                const MayLearnFn& may_learn) {
  const std::vector<MlpSample> samples = AcceptTrainingSamples(set, model, may_learn);
  if (samples.empty())
    return absl::FailedPreconditionError(absl::StrCat("profiles: no device knows ", model));
  PredictorNetwork network{"accept", model, {}};
  for (int member = 0; member < kMembers; ++member) {
    RUNNEL_ASSIGN_OR_RETURN(Mlp mlp, TrainMlp(samples, AcceptTraining(member)));
    network.members.push_back(std::move(mlp));
  }
  return network;
}

}  // namespace runnel
