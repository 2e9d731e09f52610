#pragma once

// Cross-validation of latency predictors on measured profiles (AccEPT 4.2.1, figures 7 and 8): each
// task is predicted from other families of devices and a few samples of its own, then compared with
// its measured times.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/judge/predictions_file.h"
#include "predictor/run/device_task.h"
#include "predictor/run/predictor_row.h"

namespace runnel {

// Number of predictions with |predicted / measured - 1| <= 5 % and <= 10 %.
struct ErrorShares {
  int64_t count = 0;
  int64_t within_5 = 0;
  int64_t within_10 = 0;

  void Add(double predicted, double measured);
  void Add(const ErrorShares& other);
  double within_5pct() const { return count == 0 ? 0 : double(within_5) / double(count); }
  double within_10pct() const { return count == 0 ? 0 : double(within_10) / double(count); }
};

// [method][number of adaptation samples], over one configuration or over all.
using MethodShares = std::map<std::string, std::map<int64_t, ErrorShares>>;

struct Accuracy {
  MethodShares all;
  ErrorShares noise_floor;  // the second pass as a prediction of the first
  std::map<std::string, MethodShares> by_configuration;
  std::map<std::string, ErrorShares> noise_by_configuration;
};

// Profiles that a prediction must not use: those of the task's whole family (an unseen kind of
// device), or those of the task's configuration alone (AccEPT 4.2.1).
enum class LeaveOut { kFamily, kConfiguration };
// The family or the configuration.
inline const std::string& LeftOutName(LeaveOut leave_out, const DeviceTask& task) {
  return leave_out == LeaveOut::kFamily ? task.family : task.configuration;
}

// The methods:
//   mlp, accept, accept+  rows with a network, if `networks` has their predictions (PredictWithRow)
//   mixture      the row of this name; for a model that no known device has its cold start
//   flops   a line over MACs through the device's own measurements
//   lut     the sum of the layers' times, measured on the device; single layers are not counted,
//           since their times are in the table
//   ratio   FTPipeHD: central's times, multiplied by the device's capacity
// A method's own measurements are ten representatives (mlp, mixture: the most informative; accept,
// accept+ and flops: AccEPT's by FLOPs rank; ratio and lut: none) and the adaptation samples, which are the
// same for every method. Ranges that are representatives of either kind are not judged. K-fold: to
// judge fold k, adaptation samples come from the other folds, so no judged range was ever measured;
// every method and sample count is judged on the same ranges. sample_counts: at least one. Errors
// as DevicePredictor::Create.
absl::StatusOr<Accuracy> JudgePredictors(absl::Span<const DeviceTask> tasks,
                                         absl::Span<const int64_t> sample_counts,
                                         absl::Span<const TaskPrediction> networks,
                                         LeaveOut leave_out = LeaveOut::kFamily);

// Judges predictions of the tasks in `unseen`, made from all of `known`. InvalidArgument: a
// configuration is in both; otherwise as JudgePredictors.
absl::StatusOr<Accuracy> JudgeUnseen(absl::Span<const DeviceTask> known,
                                     absl::Span<const DeviceTask> unseen,
                                     absl::Span<const int64_t> sample_counts,
                                     absl::Span<const TaskPrediction> networks);

// The tasks as known devices. Errors as KnownDevice::Create.
absl::StatusOr<std::vector<KnownDevice>> DevicesOf(absl::Span<const DeviceTask> tasks);

// The knowledge for a prediction of `task`: the devices that were profiled with its model, as far
// as `may_know` lets them pass. devices: DevicesOf(others).
PredictorKnowledge KnowledgeFor(const DeviceTask& task, absl::Span<const DeviceTask> others,
                                absl::Span<const KnownDevice> devices,
                                const std::function<bool(const DeviceTask& other)>& may_know);

// A row's predictions of the task's judged ranges, fold by fold (PredictByFold), with the first
// `samples` of each fold. Errors as PredictorRow::fit.
absl::StatusOr<TaskPrediction> PredictWithRow(const PredictorRow& row,
                                              const PredictorKnowledge& knowledge,
                                              const DeviceTask& task, int64_t samples);

// The task of FTPipeHD's central device for the same model and recipe, of the nearest batch size;
// null if there is none.
const DeviceTask* CentralOf(absl::Span<const DeviceTask> tasks, const DeviceTask& task);

// Figure 4: a layer's time as FTPipeHD estimates it from one measured range, and as measured.
struct LayerError {
  int layer = 0;
  double estimated_seconds = 0;
  double measured_seconds = 0;
};
// FailedPrecondition: the task has no central, or either lacks a layer or the range.
absl::StatusOr<std::vector<LayerError>> RatioLayerErrors(const DeviceTask& task,
                                                         const DeviceTask& central,
                                                         const LayerRange& measured);

}  // namespace runnel
