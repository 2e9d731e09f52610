#include "central/run/machines/measuring/measurement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {

void Measurement::Begin(std::vector<int> devices, int64_t step, Generation generation,
                        const Roster& roster, RunEffects& effects) {
  is_first_ = times_.empty();
  new_.clear();
  times_.resize(roster.devices().size());
  for (const int device : devices) {
    if (times_[static_cast<size_t>(device)].empty()) new_.insert(device);
  }
  shares_.assign(times_.size(), 0);
  step_ = step;
  generation_ = generation;
  parts_ = false;
  answered_.clear();
  kept_.clear();
  done_ = 0;
  awaited_ = std::move(devices);
  SendRequests(roster, effects);
}

void Measurement::SendRequests(const Roster& roster, RunEffects& effects) {
  const auto is_local = [&roster](int device) { return roster.device(device).local; };
  const auto locals = std::count_if(awaited_.begin(), awaited_.end(), is_local);
  for (const int device : awaited_) {
    ProfileRequest request = MakeRequest(device);
    if (!in_turns() && is_local(device)) request.neighbours = locals - 1;
    effects.push_back(SendControl{roster.device(device).connection, std::move(request)});
    if (in_turns()) return;
  }
}

ProfileRequest Measurement::MakeRequest(int device) const {
  ProfileRequest request = options_.request;
  request.ranges = RangesToMeasure();
  // Of a device that came later too: nothing contradicts it yet.
  request.accepts_kept = is_first_ || new_.contains(device);
  request.generation = generation_;
  if (parts_) request.cost_codecs.clear();  // known since the layers
  if (parts_ && !in_turns())
    request.burst_ms = std::max(request.burst_ms, options_.part_ms * devices() /
                                                      static_cast<double>(request.ranges.size()));
  request.enough_ms = request.burst_ms * static_cast<double>(request.repetitions);
  if (in_turns()) return request;
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
  if (!IsAsked(device) || !IsAbout(report.generation)) return false;
  RUNNEL_RETURN_IF_ERROR(CheckReport(report));
  RUNNEL_RETURN_IF_ERROR(UpdateTimes(device, report.layer_seconds, roster, effects));
  if (!in_turns() && !parts_) answered_.push_back(device);
  const bool is_known = std::find(kept_.begin(), kept_.end(), device) != kept_.end();
  if (report.kept && !is_known) {
    kept_.push_back(device);
    std::sort(kept_.begin(), kept_.end());
  }
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

void Measurement::AddProgress(int device, double share) {
  if (IsAsked(device)) shares_[static_cast<size_t>(device)] = share;
}

// Layers and parts take about as long.
double Measurement::Progress() const {
  if (!under_way()) return 1;
  const double sum = std::accumulate(shares_.begin(), shares_.end(), static_cast<double>(done_));
  const double share = sum / static_cast<double>(done_ + awaited_.size());
  if (in_turns() || Parts().empty()) return share;
  return parts_ ? 0.5 + share / 2 : share / 2;
}

// The device is done with what it was asked for.
void Measurement::GoOnWithout(int device, const Roster& roster, RunEffects& effects) {
  std::erase(awaited_, device);
  shares_[static_cast<size_t>(device)] = 0;
  ++done_;
  if (in_turns()) return SendRequests(roster, effects);
  if (!awaited_.empty() || parts_ || Parts().empty()) return;
  parts_ = true;
  done_ = 0;
  awaited_ = std::exchange(answered_, {});
  SendRequests(roster, effects);
}

}  // namespace runnel
