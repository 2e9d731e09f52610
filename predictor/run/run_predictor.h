#pragma once

// The latency predictor of one run (AccEPT 3.2): a DevicePredictor for each of its devices, all of
// one model at one batch size, with what devices that were profiled before tell of that model.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/profiles/profile_file.h"
#include "predictor/run/known_device.h"
#include "predictor/run/latency_predictor.h"
#include "proto/base/device_times.h"
#include "proto/base/layer_range.h"
#include "proto/base/model_spec.h"

namespace runnel {

// The devices that were profiled with this model, by its name; none: it is in no profile.
// InvalidArgument names the profile and what it lacks: see TasksOf; every layer must have been
// measured by itself.
absl::StatusOr<std::vector<KnownDevice>> KnownDevices(absl::Span<const DeviceProfile> profiles,
                                                      const ModelSpec& model);

// Not thread-safe.
class RunPredictor {
 public:
  // batch: samples of a micro-batch. known: as KnownDevices gives them; none: a cold start, from
  // each device's own representatives and the FLOPs line through them. InvalidArgument as
  // InferShapes.
  static absl::StatusOr<RunPredictor> Create(const ModelSpec& model, int64_t batch,
                                             std::vector<KnownDevice> known,
                                             const PredictorOptions& options = {});

  size_t known_devices() const { return known_->size(); }
  // What is to be measured of a device, each once: with known devices those ten of the ranges that
  // all of them measured that tell most (telling_ranges.h); else AccEPT's ten by FLOPs rank.
  const std::vector<LayerRange>& representatives() const { return representatives_; }

  // A device's representatives, measured for the first time or again: what was learned of it before
  // counts no more. `seconds` in the order of representatives(). InvalidArgument: another number of
  // them, or one that is no time.
  absl::Status Characterise(int device, absl::Span<const double> seconds);
  bool Knows(int device) const { return devices_.count(device) > 0; }

  // The device must be known, the range one of the model.
  double Seconds(int device, const LayerRange& range) const;
  // Of every range.
  DeviceTimes Times(int device) const;

  // As DevicePredictor's; FailedPrecondition: the device is not known.
  absl::StatusOr<ReportOutcome> Report(int device, const Observation& reported);
  double epsilon() const { return options_.epsilon; }

 private:
  RunPredictor(ModelWork work, std::vector<KnownDevice> known, const PredictorOptions& options)
      : work_(std::move(work)),
        known_(std::make_shared<const std::vector<KnownDevice>>(std::move(known))),
        options_(options) {}

  ModelWork work_;
  DeviceMixture::Known known_;
  PredictorOptions options_;
  int64_t batch_ = 0;
  std::vector<LayerRange> representatives_;
  std::map<int, DevicePredictor> devices_;
};

}  // namespace runnel
