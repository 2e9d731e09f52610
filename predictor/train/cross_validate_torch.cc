#include "predictor/train/cross_validate_torch.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/train/train_networks.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// No network if there are too few samples to learn from.
absl::StatusOr<std::optional<PredictorNetwork>> IfEnough(absl::StatusOr<PredictorNetwork> network) {
  if (absl::IsFailedPrecondition(network.status())) return std::nullopt;
  RUNNEL_RETURN_IF_ERROR(network.status());
  return *std::move(network);
}

class CrossValidation {
 public:
  CrossValidation(const TrainingSet* set, absl::Span<const int64_t> sample_counts,
                  LeaveOut leave_out)
      : set_(set), sample_counts_(sample_counts), leave_out_(leave_out) {}

  // Adds the predictions of all tasks that are left out together.
  absl::Status Add(const std::string& left_out) {
    const auto may_learn = [&](const DeviceTask& task) {
      return LeftOutName(leave_out_, task) != left_out;
    };
    RUNNEL_ASSIGN_OR_RETURN(const std::optional<PredictorNetwork> mlp,
                            IfEnough(TrainMlpRow(*set_, may_learn)));
    std::set<std::string> models;
    for (const DeviceTask& task : set_->tasks) {
      if (!may_learn(task)) models.insert(task.model);
    }
    for (const std::string& model : models) {
      RUNNEL_ASSIGN_OR_RETURN(const std::optional<PredictorNetwork> accept,
                              IfEnough(TrainAcceptRow(*set_, model, may_learn)));
      for (const DeviceTask& task : set_->tasks) {
        if (may_learn(task) || task.model != model) continue;
        PredictorKnowledge knowledge = KnowledgeFor(task, set_->tasks, set_->devices, may_learn);
        RUNNEL_RETURN_IF_ERROR(Predict("mlp", mlp, task, knowledge));
        RUNNEL_RETURN_IF_ERROR(Predict("accept", accept, task, knowledge));
        RUNNEL_RETURN_IF_ERROR(Predict("accept+", accept, task, knowledge));
      }
    }
    return absl::OkStatus();
  }

  std::vector<TaskPrediction> TakePredictions() { return std::move(predictions_); }

 private:
  absl::Status Predict(const char* name, const std::optional<PredictorNetwork>& network,
                       const DeviceTask& task, PredictorKnowledge& knowledge) {
    RUNNEL_ASSIGN_OR_RETURN(const PredictorRow* row, FindPredictor(name));
    knowledge.network = network;
    if (!CheckKnowledge(*row, knowledge).ok()) return absl::OkStatus();
    for (const int64_t count : sample_counts_) {
      RUNNEL_ASSIGN_OR_RETURN(TaskPrediction one, PredictWithRow(*row, knowledge, task, count));
      predictions_.push_back(std::move(one));
    }
    return absl::OkStatus();
  }

  const TrainingSet* set_;
  absl::Span<const int64_t> sample_counts_;
  LeaveOut leave_out_;
  std::vector<TaskPrediction> predictions_;
};

}  // namespace

absl::StatusOr<std::vector<TaskPrediction>> CrossValidate(std::vector<DeviceTask> tasks,
                                                          absl::Span<const int64_t> sample_counts,
                                                          LeaveOut leave_out,
                                                          const ProgressFn& progress) {
  RUNNEL_ASSIGN_OR_RETURN(const TrainingSet set, TrainingSet::Create(std::move(tasks)));
  std::set<std::string> names;
  for (const DeviceTask& task : set.tasks) names.insert(LeftOutName(leave_out, task));
  CrossValidation validation(&set, sample_counts, leave_out);
  for (const std::string& name : names) {
    progress(absl::StrCat("without ", name));
    RUNNEL_RETURN_IF_ERROR(validation.Add(name));
  }
  return validation.TakePredictions();
}

}  // namespace runnel
