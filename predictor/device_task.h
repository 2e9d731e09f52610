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
#include "predictor/features.h"
#include "predictor/profile_file.h"

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
  // Indices in the order in which they become adaptation samples: the probes, each once, spread
  // over the ranks from the largest on; then the others in an order of their own (AccEPT 4.2.1).
  std::vector<size_t> order;

  // h: the logarithms of the probes' seconds.
  std::vector<float> Hardware() const;
  // The first `count` of `order`, or all.
  std::vector<size_t> Samples(size_t count) const;
  bool IsProbe(size_t range) const;
};

using FindModelFn = std::function<absl::StatusOr<ModelSpec>(absl::string_view name)>;

// The tasks of all profiles. `max_macs` as they were measured (sub_models.h). InvalidArgument names
// the profile and what it lacks: a model that `find_model` does not know, a layer that the model
// does not have, a representative that was not measured.
absl::StatusOr<std::vector<DeviceTask>> TasksOf(absl::Span<const DeviceProfile> profiles,
                                                int64_t max_macs, const FindModelFn& find_model);

}  // namespace runnel
