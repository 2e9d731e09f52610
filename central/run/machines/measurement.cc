#include "central/run/machines/measurement.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {

void Measurement::Begin(std::vector<int> devices, int64_t step, const Roster& roster,
                        RunEffects& effects) {
  times_.resize(roster.devices().size());
  step_ = step;
  parts_ = false;
  answered_.clear();
  awaited_ = std::move(devices);
  SendRequests(roster, effects);
}

void Measurement::SendRequests(const Roster& roster, RunEffects& effects) {
  for (const int device : awaited_) {
    effects.push_back(SendControl{roster.device(device).connection, MakeRequest()});
    if (in_turns()) return;
  }
}

ProfileRequest Measurement::MakeRequest() const {
  ProfileRequest request = options_.request;
  request.ranges = RangesToMeasure();
  if (in_turns()) return request;
  if (parts_)
    request.burst_ms = options_.part_ms * devices() / static_cast<double>(request.ranges.size());
  for (const LayerRange& range : request.ranges) {
    request.in_flight.push_back(
        parts_ && options_.pipelined ? InFlightOf(range, layers(), devices()) : 1);
  }
  return request;
}

std::vector<LayerRange> Measurement::RangesToMeasure() const {
  if (in_turns()) return options_.sub_models;
  return parts_ ? Parts() : EachLayer(layers());
}

bool Measurement::IsAsked(int device) const {
  const auto found = std::find(awaited_.begin(), awaited_.end(), device);
  return found != awaited_.end() && (!in_turns() || found == awaited_.begin());
}

absl::StatusOr<bool> Measurement::AddReport(int device, const ProfileReport& report,
                                            const Roster& roster, RunEffects& effects) {
  if (!IsAsked(device)) return false;
  RUNNEL_RETURN_IF_ERROR(CheckReport(report));
  RUNNEL_RETURN_IF_ERROR(UpdateTimes(device, report.layer_seconds, roster, effects));
  if (!in_turns() && !parts_) answered_.push_back(device);
  GoOnWithout(device, roster, effects);
  return true;
}

absl::Status Measurement::CheckReport(const ProfileReport& report) const {
  for (const double seconds : report.layer_seconds) {
    const bool is_time = std::isfinite(seconds) && (in_turns() ? seconds > 0 : seconds >= 0);
    if (!is_time) return absl::InternalError("a worker's profile is not a time");
  }
  if (report.layer_seconds.size() != RangesToMeasure().size())
    return absl::InternalError("a worker's profile does not have the ranges asked for");
  return absl::OkStatus();
}

absl::Status Measurement::UpdateTimes(int device, const std::vector<double>& seconds,
                                      const Roster& roster, RunEffects& effects) {
  DeviceTimes& times = times_[static_cast<size_t>(device)];
  const std::vector<LayerRange> ranges = RangesToMeasure();
  if (in_turns()) {
    SubModelsMeasured measured{step_, DeviceId(device), roster.name(device), {}};
    for (size_t i = 0; i < seconds.size(); ++i)
      measured.sub_models.push_back({ranges[i], seconds[i]});
    effects.push_back(Persist{std::move(measured)});
    RUNNEL_ASSIGN_OR_RETURN(times, planner_->Characterise(device, seconds));
  } else if (!parts_) {
    times = DeviceTimes::ByLayer(seconds);
  } else if (ranges.size() < RangeCount(layers())) {
    times = DeviceTimes::ByLayer(LayersWithinParts(times.figures(), ranges, seconds));
  } else {
    times = DeviceTimes::ByRange(layers(), seconds);
  }
  return absl::OkStatus();
}

bool Measurement::SkipDevice(int device, const Roster& roster, RunEffects& effects) {
  if (!IsAsked(device)) return false;
  GoOnWithout(device, roster, effects);
  return true;
}

// The device is done with what it was asked for.
void Measurement::GoOnWithout(int device, const Roster& roster, RunEffects& effects) {
  std::erase(awaited_, device);
  if (in_turns()) return SendRequests(roster, effects);
  if (!awaited_.empty() || parts_ || Parts().empty()) return;
  parts_ = true;
  awaited_ = std::exchange(answered_, {});
  SendRequests(roster, effects);
}

}  // namespace runnel
