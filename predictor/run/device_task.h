#pragma once

// One model on one device configuration, as measured: what a prediction is made from and what it is
// judged by.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "predictor/profiles/profile_file.h"
#include "predictor/run/features.h"
#include "predictor/run/layer_times.h"

namespace runnel {

struct DeviceTask {
  std::string family;
  std::string configuration;
  std::string recipe;
  std::string model;
  int64_t batch = 0;
  bool central = false;  // the plain configuration that others are compared with (ratio)
  std::shared_ptr<const ModelWork> work;
  std::vector<LayerRange> ranges;
  std::vector<double> seconds;         // by range: the first pass
  std::vector<double> second_seconds;  // the second; 0: none
  // The ten representatives as indices into `ranges`, in ascending order of MACs; a model of few
  // layers has some of them twice.
  std::vector<size_t> probes;
  // The ten that tell most of the others (telling_ranges.h), most telling first: what our own
  // predictor measures of a device.
  std::vector<size_t> telling;
  // Ranges that are neither are judged, each in one of kFolds folds; by range, kNotJudged for the
  // others. Drawn; goes by model and batch size, not by the device.
  std::vector<int> fold;
  static constexpr int kFolds = 4;
  static constexpr int kNotJudged = -1;
  // By fold, indices in the order in which they become adaptation samples where that fold is
  // judged: of the ranges that are not in it, those that tell most beside `telling`. None of them
  // is among `telling`: each is news to a predictor.
  std::vector<std::vector<size_t>> order;

  // h: the logarithms of the probes' seconds.
  std::vector<float> Hardware() const;
  // The first `count` of order[fold], or all.
  std::vector<size_t> Samples(int fold, size_t count) const;
  // Everything, mean of both passes; the faster one where they are far apart: one of them was
  // disturbed.
  std::vector<Observation> BothPasses() const;
};

// By range, what `predict` says without the range's own fold: predict(fold) is by range, empty if
// it has nothing to say (then so is the result). Ranges that are not judged: 0.
absl::StatusOr<std::vector<double>> PredictByFold(
    const DeviceTask& task,
    const std::function<absl::StatusOr<std::vector<double>>(int fold)>& predict);

using FindModelFn = std::function<absl::StatusOr<ModelSpec>(absl::string_view name)>;

// The tasks of all profiles. `max_macs` as they were measured (sub_models.h). InvalidArgument names
// the profile and what it lacks: a model that `find_model` does not know, a layer that the model
// does not have, a representative that was not measured.
absl::StatusOr<std::vector<DeviceTask>> TasksOf(absl::Span<const DeviceProfile> profiles,
                                                int64_t max_macs, const FindModelFn& find_model);

}  // namespace runnel
