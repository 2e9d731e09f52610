#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/layer_profile.h"
#include "central/run/coordinator.h"
#include "proto/base/layer_range.h"

namespace runnel {

// What the devices take: measured before the first plan, and again at a barrier where one of them
// is not what it was.

// By sub-models for the predictor one device after the other: they characterise a device as it is
// by itself. By layer all at once: that is how they train, and those that share a processor, a
// cache or memory are planned with what that leaves to each. Parts are measured when all devices
// have their layers, for about the same time on each, so that none has the machine to itself before
// the others are done.
void Coordinator::Measure() {
  measures_parts_ = false;
  AskForProfiles();
}

void Coordinator::AskForProfiles() {
  if (to_measure_.empty()) return Measured();
  for (const int device : to_measure_) {
    SendProfileRequest(device);
    if (!options_.profile_ranges.empty()) return;
  }
}

void Coordinator::Measured() { return phase_ == Phase::kMeasuring ? Replan() : MakePlan(); }

void Coordinator::SendProfileRequest(int device) {
  ProfileRequest request;
  request.model = options_.model;
  request.recipe = options_.recipe;
  request.backend = options_.backend;
  request.micro_batch_size = batching_.MicroBatchSizes().front();
  request.repetitions = options_.profile_repetitions;
  request.ranges = RangesToMeasure();
  request.burst_ms = options_.profile_burst_ms;
  // The predictor knows devices by other measurements. A stage that accumulates gradients drains
  // each step: fewer may be in flight.
  const int devices = static_cast<int>(devices_.size());
  if (measures_parts_) {
    // All of them together take what one part a device would.
    request.burst_ms = options_.profile_part_ms * devices / static_cast<double>(Parts().size());
  }
  for (const LayerRange& range : request.ranges) {
    if (!options_.profile_ranges.empty()) break;
    const bool pipelined = measures_parts_ && options_.training.micro_batches == 1;
    request.in_flight.push_back(pipelined ? InFlightOf(range, options_.model.layer_count(), devices)
                                          : 1);
  }
  effects_.push_back(SendControl{devices_[device].connection, std::move(request)});
}

void Coordinator::On(int device, const ProfileReport& report) {
  const auto asked = std::find(to_measure_.begin(), to_measure_.end(), device);
  const bool in_turns = !options_.profile_ranges.empty();
  if (asked == to_measure_.end() || (in_turns && asked != to_measure_.begin())) return;
  devices_[device].processor_share = report.processor_share;
  if (absl::Status status = TakeProfile(device, report.layer_seconds); !status.ok())
    return End(std::move(status), false);
  if (!in_turns) have_layers_.push_back(device);
  NextMeasurement(device);
}

void Coordinator::CannotMeasure(int device, const std::string& reason) {
  effects_.push_back(
      LogLine{Severity::kWarning,
              absl::StrCat("step ", step_, ": worker ", devices_[device].hello.name,
                           " could not measure (", reason, "); plans go by what was known of it")});
  NextMeasurement(device);
}

void Coordinator::NextMeasurement(int device) {
  std::erase(to_measure_, device);
  if (!options_.profile_ranges.empty()) return AskForProfiles();
  if (!to_measure_.empty()) return;
  if (!measures_parts_ && !Parts().empty()) {
    measures_parts_ = true;
    to_measure_.swap(have_layers_);
    return AskForProfiles();
  }
  have_layers_.clear();
  Measured();
}

std::vector<LayerRange> Coordinator::Parts() const {
  return PartsOf(options_.model.layer_count(), static_cast<int>(devices_.size()));
}

std::vector<LayerRange> Coordinator::RangesToMeasure() const {
  if (!options_.profile_ranges.empty()) return options_.profile_ranges;
  return measures_parts_ ? Parts() : EachLayer(options_.model.layer_count());
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
  if (by_layer && measures_parts_ && ranges.size() < RangeCount(options_.model.layer_count())) {
    times_[device] =
        DeviceTimes::ByLayer(LayersWithinParts(times_[device].figures(), ranges, seconds));
    return absl::OkStatus();
  }
  if (by_layer) {
    times_[device] = measures_parts_ ? DeviceTimes::ByRange(options_.model.layer_count(), seconds)
                                     : DeviceTimes::ByLayer(seconds);
    return absl::OkStatus();
  }
  SubModelsMeasured measured{step_, DeviceId(device), devices_[device].hello.name, {}};
  for (size_t i = 0; i < seconds.size(); ++i)
    measured.sub_models.push_back({ranges[i], seconds[i]});
  effects_.push_back(Persist{std::move(measured)});
  absl::StatusOr<DeviceTimes> predicted = options_.planner->Characterise(device, seconds);
  if (!predicted.ok()) return predicted.status();
  times_[device] = *std::move(predicted);
  return absl::OkStatus();
}

std::vector<DeviceFacts> Coordinator::FactsOfDevices() const {
  std::vector<DeviceFacts> facts;
  for (size_t i = 0; i < devices_.size(); ++i)
    facts.push_back({devices_[i].hello.name, devices_[i].processor_share, lost_[i]});
  return facts;
}

BarrierReport Coordinator::Report() const {
  return {step_, plan_, plan_first_, stages_, FactsOfDevices(), times_};
}

// At a barrier at which layers may move.
void Coordinator::MeasureAndReplan() {
  BarrierDecision decision = options_.planner->AtBarrier(Report());
  const auto* measure = std::get_if<MeasureDevices>(&decision);
  if (measure == nullptr) return CarryOut(std::move(decision));
  to_measure_ = measure->devices;
  phase_ = Phase::kMeasuring;
  for (const int device : to_measure_) {
    effects_.push_back(LogLine{
        Severity::kInfo, absl::StrCat("step ", step_, ": worker ", devices_[device].hello.name,
                                      " is not what it was, its sub-models are measured "
                                      "again")});
  }
  Measure();
}

// The devices have been measured, or could not be.
void Coordinator::Replan() {
  if (stop_requested_) return CollectFinal();  // while a device measured
  CarryOut(options_.planner->AtBarrier(Report()));
}

void Coordinator::CarryOut(BarrierDecision decision) {
  auto* change = std::get_if<ChangePlan>(&decision);
  if (change != nullptr && BeginMove(std::move(*change))) return;
  GrantNext();
}

}  // namespace runnel
