#pragma once

// A worker's report of its device to central: times of ranges of layers, measured now or in an
// earlier run, and the rate of the path from central. One thread.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/transport/control/probe_train.h"
#include "worker/measure/measurement_store.h"
#include "worker/measure/profiler.h"

namespace runnel {

class SelfMeasurement {
 public:
  // Runs ProfileRanges with these options on the backend that the request names; no progress is
  // told if on_progress is null.
  using ProfileFn = std::function<absl::StatusOr<std::vector<RangeTime>>(
      const ProfileOptions& options, const std::function<void(double share)>& on_progress)>;
  // The backend of the last call of ProfileFn.
  using MeasuredOnFn = std::function<MeasuredOn()>;
  using ProgressFn = std::function<void(const ProfileProgress& progress)>;

  // transport, clock and logger are borrowed. transport: what links of this worker use; null: its
  // costs are not measured. processors: how many this worker and its neighbours may have
  // (UsableProcessors); 0: not known. An answer that had clearly less than its part of them is not kept: others
  // worked beside it, and the next run measures again.
  SelfMeasurement(MeasurementStore store, Transport* transport, const Clock* clock, Logger* logger,
                  double processors);

  // on_progress is called a few times a second. measured_on may be null. Errors as `profile`.
  absl::StatusOr<ProfileReport> Answer(const ProfileRequest& request, const ProfileFn& profile,
                                       const ProgressFn& on_progress,
                                       const MeasuredOnFn& measured_on = nullptr);
  // The answer to a piece: a ping for a ping, and nothing until a train is complete.
  std::vector<WorkerMessage> Answer(const ProbePiece& piece);

  // Others use this worker's processor too, as the last answer found.
  bool shares_processor() const { return shares_processor_; }

 private:
  absl::StatusOr<ProfileReport> Measure(const ProfileRequest& request, const ProfileFn& profile,
                                        const ProgressFn& on_progress);
  DeviceCosts MeasureCosts(const std::vector<std::string>& codecs);
  bool WasDisturbed(const ProfileRequest& request, const ProfileReport& report);
  void Keep(const ProfileRequest& request, const ProfileReport& report);

  const MeasurementStore store_;
  Transport* transport_;
  const Clock* clock_;
  Logger* logger_;
  const double processors_;
  bool shares_processor_ = false;
  bool warned_ = false;  // whether a warning said that nothing can be kept
  ProbeReceiver probe_;
};

}  // namespace runnel
