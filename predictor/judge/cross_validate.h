#pragma once

// The predictor judged on profiles: each task is predicted from what other families of devices
// showed and a few samples of its own, then compared with what was measured (AccEPT 4.2.1, figures
// 7 and 8).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/judge/predictions_file.h"
#include "predictor/run/device_task.h"

namespace runnel {

// Shares of predictions whose error is within bounds of what was measured.
struct ErrorShares {
  int64_t count = 0;
  int64_t within_5 = 0;
  int64_t within_10 = 0;

  void Add(double predicted, double measured);
  void Add(const ErrorShares& other);
  double within_5pct() const { return count == 0 ? 0 : double(within_5) / double(count); }
  double within_10pct() const { return count == 0 ? 0 : double(within_10) / double(count); }
};

// method -> adaptation samples -> shares; of one configuration or of all.
using MethodShares = std::map<std::string, std::map<int64_t, ErrorShares>>;

struct Accuracy {
  MethodShares all;
  ErrorShares noise_floor;  // second pass against first
  std::map<std::string, MethodShares> by_configuration;
  std::map<std::string, ErrorShares> noise_by_configuration;
};

// What a prediction may not know of: the task's whole family of configurations (a kind of device
// never seen), or the task's configuration alone (AccEPT 4.2.1: one device of those like it).
enum class LeaveOut { kFamily, kConfiguration };

// The methods:
//   mlp     this predictor, as a run has it: a mixture of the devices that may be known
//           (device_mixture.h); for a model that none of them has, layers by the network "work" of
//           `networks`, else by the FLOPs line, corrected by the device's own measurements
//   accept  AccEPT's network as the paper has it, if `networks` has it: those are trained without
//           families
//   flops   a line through the device's own measurements over MACs
//   lut     the layers' own times, measured on the device, added up; single layers, which it has
//           by heart, are left out of its count
//   ratio   FTPipeHD: central's times by the device's capacity
// Own measurements are ten representatives (mlp: those that tell most; accept and flops: AccEPT's
// by FLOPs rank; ratio and lut: none), and the adaptation samples, the same for every method.
// Judged are the ranges that are no representative of either kind, a fold at a time: what a fold is
// judged by has its samples from the others, so no judged time is known, and the judged ranges are
// the same for every method and count. Errors as DevicePredictor::Create. sample_counts: at least
// one.
absl::StatusOr<Accuracy> JudgePredictors(absl::Span<const DeviceTask> tasks,
                                         absl::Span<const int64_t> sample_counts,
                                         absl::Span<const TaskPrediction> networks,
                                         LeaveOut leave_out = LeaveOut::kFamily);

// The same for devices that are not among those known at all: `unseen` is predicted from all of
// `known` (of the methods, accept is not among them).
// InvalidArgument: a configuration that is in both; errors as JudgePredictors.
absl::StatusOr<Accuracy> JudgeUnseen(absl::Span<const DeviceTask> known,
                                     absl::Span<const DeviceTask> unseen,
                                     absl::Span<const int64_t> sample_counts);

// What central, as FTPipeHD's estimate knows it, took for the ranges of `task`; null if no other
// task is its central's. The nearest batch size counts.
const DeviceTask* CentralOf(absl::Span<const DeviceTask> tasks, const DeviceTask& task);

// Figure 4: a layer's time as FTPipeHD estimates it from one measured range, and as it is.
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
