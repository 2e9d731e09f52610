#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/coordinator.h"
#include "central/layer_profile.h"

namespace runnel {

// What the devices take: measured before the first plan, and again at a barrier where one of them
// is not what it was.

// By sub-models for the predictor one device after the other: they characterise a device as it is
// by itself. By layer all at once: that is how they train, and those that share a processor, a
// cache or memory are planned with what that leaves to each.
void Coordinator::Measure() {
  if (to_measure_.empty()) return Measured();
  for (const int device : to_measure_) {
    SendProfileRequest(device);
    if (!options_.profile_ranges.empty()) return;
  }
}

void Coordinator::Measured() { return phase_ == Phase::kMeasuring ? Replan() : MakePlan(); }

void Coordinator::SendProfileRequest(int device) {
  const ProfileRequest request{options_.model,
                               options_.recipe,
                               options_.backend,
                               batching_.MicroBatchSizes().front(),
                               options_.profile_repetitions,
                               RangesToMeasure(),
                               options_.profile_burst_ms,
                               /*nominal_step_ns=*/0,
                               InFlightToMeasure()};
  effects_.push_back(SendControl{devices_[device].connection, request});
}

void Coordinator::On(int device, const ProfileReport& report) {
  const auto asked = std::find(to_measure_.begin(), to_measure_.end(), device);
  const bool in_turns = !options_.profile_ranges.empty();
  if (asked == to_measure_.end() || (in_turns && asked != to_measure_.begin())) return;
  devices_[device].processor_share = report.processor_share;
  if (absl::Status status = TakeProfile(device, report.layer_seconds); !status.ok())
    return End(std::move(status), false);
  to_measure_.erase(asked);
  if (to_measure_.empty()) return Measured();
  if (in_turns) Measure();
}

std::vector<LayerRange> Coordinator::RangesToMeasure() const {
  if (!options_.profile_ranges.empty()) return options_.profile_ranges;
  return LayersAndParts(options_.model.layer_count(), static_cast<int>(devices_.size()));
}

std::vector<int64_t> Coordinator::InFlightToMeasure() const {
  if (!options_.profile_ranges.empty() || options_.training.micro_batches > 1) return {};
  return InFlightOfParts(options_.model.layer_count(), static_cast<int>(devices_.size()));
}

absl::Status Coordinator::TakeProfile(int device, const std::vector<double>& seconds) {
  const std::vector<LayerRange> ranges = RangesToMeasure();
  const bool by_layer = options_.profile_ranges.empty();
  for (const double one : seconds) {
    const bool is_time = std::isfinite(one) && (by_layer ? one >= 0 : one > 0);
    if (!is_time) return absl::InternalError("a worker's profile is not a time");
  }
  if (seconds.size() != ranges.size())
    return absl::InternalError("a worker's profile does not have the ranges asked for");
  if (by_layer) {
    layer_seconds_[device] = LayersWithinParts(ranges, seconds);
    return absl::OkStatus();
  }
  if (!options_.predict) {
    layer_seconds_[device] = seconds;
    return absl::OkStatus();
  }
  SubModelsMeasured measured{step_, DeviceId(device), devices_[device].hello.name, {}};
  for (size_t i = 0; i < seconds.size(); ++i)
    measured.sub_models.push_back({ranges[i], seconds[i]});
  effects_.push_back(Persist{std::move(measured)});
  absl::StatusOr<std::vector<double>> predicted = options_.predict(device, seconds);
  if (!predicted.ok()) return predicted.status();
  layer_seconds_[device] = *std::move(predicted);
  return absl::OkStatus();
}

BarrierReport Coordinator::Report() const {
  return {step_, plan_, plan_first_, stages_, devices_, lost_, layer_seconds_};
}

// At a barrier at which layers may move.
void Coordinator::MeasureAndReplan() {
  if (options_.to_measure) to_measure_ = options_.to_measure(Report());
  if (to_measure_.empty()) return Replan();
  phase_ = Phase::kMeasuring;
  for (const int device : to_measure_) {
    effects_.push_back(LogLine{
        Severity::kInfo, absl::StrCat("step ", step_, ": worker ", devices_[device].hello.name,
                                      " is not what it was, its sub-models are measured "
                                      "again")});
  }
  Measure();
}

void Coordinator::Replan() {
  if (stop_requested_) return CollectFinal();  // while a device measured
  std::optional<BetterPlan> better = options_.replan(Report());
  if (better.has_value() && BeginMove(*std::move(better))) return;
  GrantNext();
}

}  // namespace runnel
