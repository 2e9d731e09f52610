#pragma once

// One model on one device configuration, as measured: the samples that a prediction is made from
// and the ranges that judge it.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "predictor/fit/features.h"
#include "predictor/fit/layer_times.h"
#include "predictor/profiles/profile_file.h"

namespace runnel {

struct DeviceTask {
  std::string family;
  std::string configuration;
  std::string recipe;
  std::string model;
  int64_t batch = 0;
  bool central = false;  // the plain configuration: FTPipeHD's ratio is taken to it
  std::shared_ptr<const ModelWork> work;
  std::vector<LayerRange> ranges;
  std::vector<double> seconds;         // by range: the first pass
  std::vector<double> second_seconds;  // by range: the second pass; 0: not measured twice
  // AccEPT's ten representatives as indices into `ranges`, in ascending order of MACs; a model of
  // few layers has some of them twice.
  std::vector<size_t> probes;
  // The ten ranges that a run measures of a device (informative_ranges.h), most informative first.
  std::vector<size_t> informative;
  // The fold in which each range is judged, by range. Ranges in `probes` or `informative` are never
  // judged (kNotJudged). Folds are drawn at random, by model and batch size only, so that all
  // devices have the same.
  std::vector<int> fold;
  static constexpr int kFolds = 4;
  static constexpr int kNotJudged = -1;
  // order[fold]: adaptation samples for judging that fold, in the order in which they are added.
  // They are the most informative ranges, given `informative`, outside of the fold and of
  // `informative`.
  std::vector<std::vector<size_t>> order;

  // AccEPT's ten as ranges.
  std::vector<LayerRange> Ten() const;
  // The first `count` entries of order[fold], or all of them.
  std::vector<size_t> Samples(int fold, size_t count) const;
  // Every range with the geometric mean of both passes. Where the passes differ by more than a
  // third the faster one counts: the slower one was disturbed.
  std::vector<Observation> BothPasses() const;
};

// K-fold prediction, by range: the value for a range of fold k comes from predict(k), which must
// not use the measured times of that fold. predict(k) is by range, or empty if the method cannot
// predict the task; then the result is empty too. Ranges that are not judged: 0.
absl::StatusOr<std::vector<double>> PredictByFold(
    const DeviceTask& task,
    const std::function<absl::StatusOr<std::vector<double>>(int fold)>& predict);

using FindModelFn = std::function<absl::StatusOr<ModelSpec>(absl::string_view name)>;

// The tasks of all profiles, one for each model and batch size of each profile. `max_macs`: the
// limit with which the profiles were measured (sub_models.h). InvalidArgument names the profile and
// the defect: a model that `find_model` does not know, a layer that the model does not have, a
// representative that was not measured.
absl::StatusOr<std::vector<DeviceTask>> TasksOf(absl::Span<const DeviceProfile> profiles,
                                                int64_t max_macs, const FindModelFn& find_model);

}  // namespace runnel
