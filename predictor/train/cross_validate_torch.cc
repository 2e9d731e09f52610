#include "predictor/train/cross_validate_torch.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/train/train_torch.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

void Append(const DeviceTask& task, MlpEncoding encoding, std::vector<MlpSample>& samples) {
  for (MlpSample& sample : SamplesOf(task, encoding)) samples.push_back(std::move(sample));
}

TaskPrediction PredictionOf(const DeviceTask& task, const char* method, int64_t samples,
                            std::vector<double> seconds) {
  return {method, task.configuration, task.model, task.batch, samples, std::move(seconds)};
}

// AccEPT's network for one model, trained without `family`, on the tasks of that family.
absl::Status PredictModel(absl::Span<const DeviceTask> tasks, const std::string& family,
                          const std::string& model, absl::Span<const int64_t> sample_counts,
                          std::vector<TaskPrediction>& predictions) {
  constexpr MlpEncoding kEncoding = MlpEncoding::kLayers;
  std::vector<MlpSample> known;
  for (const DeviceTask& task : tasks) {
    if (task.family != family && task.model == model) Append(task, kEncoding, known);
  }
  if (known.empty()) return absl::OkStatus();
  MlpTraining training;
  training.hidden_1 = training.hidden_2 = training.hidden_3 = 64;
  training.epochs = 200;
  training.batch = 64;
  RUNNEL_ASSIGN_OR_RETURN(const Mlp mlp, TrainMlp(known, training));
  for (const DeviceTask& task : tasks) {
    if (task.family != family || task.model != model) continue;
    const std::vector<MlpSample> all = SamplesOf(task, kEncoding);
    for (const int64_t count : sample_counts) {
      const auto adapted = [&](int fold) -> absl::StatusOr<std::vector<double>> {
        std::vector<MlpSample> fresh;
        for (const size_t i : task.Samples(fold, static_cast<size_t>(count)))
          fresh.push_back(all[i]);
        RUNNEL_ASSIGN_OR_RETURN(const Mlp network, AdaptMlp(mlp, fresh, known, MlpAdaptation{}));
        return PredictSeconds(network, task, kEncoding);
      };
      RUNNEL_ASSIGN_OR_RETURN(std::vector<double> seconds, PredictByFold(task, adapted));
      predictions.push_back(PredictionOf(task, "accept", count, std::move(seconds)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TaskPrediction>> CrossValidate(absl::Span<const DeviceTask> tasks,
                                                          absl::Span<const int64_t> sample_counts,
                                                          const ProgressFn& progress) {
  std::set<std::string> families, models;
  for (const DeviceTask& task : tasks) {
    families.insert(task.family);
    models.insert(task.model);
  }
  std::vector<TaskPrediction> predictions;
  for (const std::string& family : families) {
    std::vector<MlpSample> known;
    for (const DeviceTask& task : tasks) {
      if (task.family != family) Append(task, MlpEncoding::kWork, known);
    }
    if (known.empty()) continue;
    progress(absl::StrCat("without ", family, ": ", known.size(), " samples"));
    RUNNEL_ASSIGN_OR_RETURN(const Mlp mlp, TrainMlp(known, WorkTraining()));
    for (const DeviceTask& task : tasks) {
      if (task.family != family) continue;
      predictions.push_back(
          PredictionOf(task, "work", 0, PredictSeconds(mlp, task, MlpEncoding::kWork)));
    }
    for (const std::string& model : models)
      RUNNEL_RETURN_IF_ERROR(PredictModel(tasks, family, model, sample_counts, predictions));
  }
  return predictions;
}

}  // namespace runnel
