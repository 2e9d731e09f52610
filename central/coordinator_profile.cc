#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/coordinator.h"

namespace runnel {

// What the devices take: measured before the first plan, and again at a barrier where one of them
// is not what it was.

// One device after the other: those on one host would take the processor from each other.
void Coordinator::MeasureNext() {
  if (to_measure_.empty()) return phase_ == Phase::kMeasuring ? Replan() : MakePlan();
  const ProfileRequest request{options_.model,
                               options_.recipe,
                               options_.backend,
                               batching_.MicroBatchSizes().front(),
                               options_.profile_repetitions,
                               options_.profile_ranges,
                               options_.profile_burst_ms};
  effects_.push_back(SendControl{devices_[to_measure_.front()].connection, request});
}

void Coordinator::On(int device, const ProfileReport& report) {
  if (to_measure_.empty() || to_measure_.front() != device) return;
  if (absl::Status status = TakeProfile(device, report.layer_seconds); !status.ok())
    return End(std::move(status), false);
  to_measure_.erase(to_measure_.begin());
  MeasureNext();
}

absl::Status Coordinator::TakeProfile(int device, const std::vector<double>& seconds) {
  const std::vector<LayerRange>& ranges = options_.profile_ranges;
  for (const double one : seconds) {
    const bool is_time = std::isfinite(one) && (ranges.empty() ? one >= 0 : one > 0);
    if (!is_time) return absl::InternalError("a worker's profile is not a time");
  }
  const size_t asked =
      ranges.empty() ? static_cast<size_t>(options_.model.layer_count()) : ranges.size();
  if (seconds.size() != asked) {
    return absl::InternalError(ranges.empty()
                                   ? "a worker's profile does not have the model's layers"
                                   : "a worker's profile does not have the ranges asked for");
  }
  if (ranges.empty() || !options_.predict) {
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
  MeasureNext();
}

void Coordinator::Replan() {
  if (stop_requested_) return CollectFinal();  // while a device measured
  std::optional<BetterPlan> better = options_.replan(Report());
  if (better.has_value() && BeginMove(*std::move(better))) return;
  GrantNext();
}

}  // namespace runnel
