#include "central/run/machines/measuring/measurement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {
namespace {

std::string HostOf(const Device& device) {
  if (device.local) return "";
  return device.hello.data_address.substr(0, device.hello.data_address.rfind(':'));
}

// Of the host that has most, central's aside.
int64_t MostOnAnotherHost(const Roster& roster) {
  std::map<std::string, int64_t> counts;
  int64_t most = 1;
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    const Device& device = roster.devices()[i];
    if (!roster.lost()[i] && !device.local) most = std::max(most, ++counts[HostOf(device)]);
  }
  return most;
}

}  // namespace

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
  phase_ = Phase::kLayers;
  second_.Clear();
  answered_.clear();
  kept_.clear();
  done_ = 0;
  Cancel();
  for (const int device : devices) {
    const auto is_like = [&](int other) {
      return AreAlike(roster.device(other).hello, roster.device(device).hello);
    };
    const bool is_first =
        std::none_of(to_answer_.measured.begin(), to_answer_.measured.end(), is_like) &&
        !ExampleOf(device, roster).has_value();
    const bool is_checked = in_turns() && new_.contains(device) && !is_first;
    (is_checked ? to_answer_.to_check : to_answer_.measured).push_back(device);
  }
  SendRequests(roster, effects);
}

std::optional<int> Measurement::ExampleOf(int device, const Roster& roster) const {
  for (const auto& [other, seconds] : sub_model_seconds_) {
    if (other != device && AreAlike(roster.device(other).hello, roster.device(device).hello))
      return other;
  }
  return std::nullopt;
}

size_t Measurement::LongestOf(int example) const {
  const std::vector<double>& seconds = sub_model_seconds_.at(example);
  return static_cast<size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
}

void Measurement::SendInTurns(const Roster& roster, RunEffects& effects) {
  if (to_answer_.measured.empty()) {
    // Whom they were to be like was lost.
    const auto has_none = [&](int device) { return !ExampleOf(device, roster).has_value(); };
    const auto found =
        std::find_if(to_answer_.to_check.begin(), to_answer_.to_check.end(), has_none);
    if (found != to_answer_.to_check.end()) {
      to_answer_.measured.push_back(*found);
      to_answer_.to_check.erase(found);
    }
  }
  const auto send = [&](int device, ProfileRequest request) {
    effects.push_back(SendControl{roster.device(device).connection, std::move(request)});
  };
  if (!to_answer_.measured.empty()) {
    to_answer_.asked = {to_answer_.measured.front()};
    return send(to_answer_.measured.front(), MakeRequest(to_answer_.measured.front(), roster));
  }
  std::set<std::string> hosts;
  for (const int device : to_answer_.to_check) {
    if (!hosts.insert(HostOf(roster.device(device))).second) continue;
    ProfileRequest request = MakeRequest(device, roster);
    request.ranges = {options_.sub_models[LongestOf(*ExampleOf(device, roster))]};
    to_answer_.checked.insert(device);
    send(device, std::move(request));
  }
  std::erase_if(to_answer_.to_check,
                [this](int device) { return to_answer_.checked.contains(device); });
}

absl::Status Measurement::AddCheck(int device, double seconds, const Roster& roster,
                                   RunEffects& effects) {
  const int example = *ExampleOf(device, roster);
  std::vector<double> all = sub_model_seconds_.at(example);
  const double ratio = seconds / all[LongestOf(example)];
  if (ratio > kAlike || ratio < 1 / kAlike) {
    to_answer_.measured.push_back(device);
    --done_;  // it begins anew
    return absl::OkStatus();
  }
  for (double& one : all) one *= ratio;
  return UpdateTimes(device, all, roster, effects);
}

void Measurement::SendRequests(const Roster& roster, RunEffects& effects) {
  if (in_turns()) return SendInTurns(roster, effects);
  const auto is_local = [&roster](int device) { return roster.device(device).local; };
  const auto locals = static_cast<int64_t>(
      std::count_if(to_answer_.measured.begin(), to_answer_.measured.end(), is_local));
  const bool is_limited = options_.local_at_once > 0 && phase_ != Phase::kSecond;
  if (to_answer_.asked.empty())
    at_once_ = is_limited ? std::min(options_.local_at_once, locals) : locals;
  int64_t locals_asked = std::count_if(to_answer_.asked.begin(), to_answer_.asked.end(), is_local);
  for (const int device : to_answer_.measured) {
    if (to_answer_.asked.contains(device)) continue;
    if (is_local(device) && locals_asked == at_once_) continue;
    to_answer_.asked.insert(device);
    ProfileRequest request = MakeRequest(device, roster);
    if (is_local(device)) {
      ++locals_asked;
      request.neighbours = at_once_ - 1;
    }
    effects.push_back(SendControl{roster.device(device).connection, std::move(request)});
  }
}

ProfileRequest Measurement::MakeRequest(int device, const Roster& roster) const {
  ProfileRequest request = options_.request;
  request.ranges = RangesToMeasure(device);
  // Also for a device that came later: nothing contradicts its kept answer yet.
  request.accepts_kept = phase_ != Phase::kSecond && (is_first_ || new_.contains(device));
  request.generation = generation_;
  if (phase_ != Phase::kLayers) request.cost_codecs.clear();  // known since the layers
  if (phase_ == Phase::kSecond) {
    request.burst_ms = options_.second_burst_ms;
  } else if (phase_ == Phase::kParts && !in_turns()) {
    const int64_t beside =
        roster.device(device).local ? std::max<int64_t>(1, at_once_) : MostOnAnotherHost(roster);
    const double all_ms = options_.part_ms * static_cast<double>(beside);
    request.burst_ms =
        std::max(request.burst_ms, all_ms / static_cast<double>(request.ranges.size()));
  }
  request.enough_ms = request.burst_ms * static_cast<double>(request.repetitions);
  if (in_turns()) return request;
  for (const LayerRange& range : request.ranges) {
    request.in_flight.push_back(phase_ != Phase::kLayers && options_.pipelined
                                    ? InFlightOf(range, layers(), devices())
                                    : 1);
  }
  return request;
}

std::vector<LayerRange> Measurement::RangesToMeasure(int device) const {
  if (in_turns()) return options_.sub_models;
  if (phase_ == Phase::kSecond) return {second_.RangeOf(device)};
  return phase_ == Phase::kParts ? Parts() : EachLayer(layers());
}

absl::StatusOr<bool> Measurement::AddReport(int device, const ProfileReport& report,
                                            const Roster& roster, RunEffects& effects) {
  if (!IsAsked(device) || !IsAbout(report.generation)) return false;
  RUNNEL_RETURN_IF_ERROR(CheckReport(device, report));
  if (phase_ == Phase::kSecond) {
    const double share = report.processor_share < kWholeProcessor ? report.processor_share : 1;
    second_.Add(device, report.layer_seconds.front() * share, share);
    GoOnWithout(device, roster, effects);
    return true;
  }
  if (to_answer_.checked.contains(device)) {
    RUNNEL_RETURN_IF_ERROR(AddCheck(device, report.layer_seconds.front(), roster, effects));
  } else {
    RUNNEL_RETURN_IF_ERROR(UpdateTimes(device, report.layer_seconds, roster, effects));
  }
  conditions_[device] = {report.processor_share, report.backend};
  if (!in_turns() && phase_ == Phase::kLayers) answered_.push_back(device);
  const bool is_known = std::find(kept_.begin(), kept_.end(), device) != kept_.end();
  if (report.kept && !is_known) {
    kept_.push_back(device);
    std::sort(kept_.begin(), kept_.end());
  }
  GoOnWithout(device, roster, effects);
  return true;
}

absl::Status Measurement::CheckReport(int device, const ProfileReport& report) const {
  for (const double seconds : report.layer_seconds) {
    const bool is_time = std::isfinite(seconds) && (in_turns() ? seconds > 0 : seconds >= 0);
    if (!is_time) return absl::InternalError("a worker's profile is not a time");
  }
  const size_t ranges = to_answer_.checked.contains(device) ? 1 : RangesToMeasure(device).size();
  if (report.layer_seconds.size() != ranges)
    return absl::InternalError("a worker's profile does not have the ranges asked for");
  return absl::OkStatus();
}

absl::Status Measurement::UpdateTimes(int device, const std::vector<double>& seconds,
                                      const Roster& roster, RunEffects& effects) {
  DeviceTimes& times = times_[static_cast<size_t>(device)];
  const std::vector<LayerRange> ranges = RangesToMeasure(device);
  if (in_turns()) {
    SubModelsMeasured measured{step_, DeviceId(device), roster.name(device), {}};
    for (size_t i = 0; i < seconds.size(); ++i)
      measured.sub_models.push_back({ranges[i], seconds[i]});
    effects.push_back(Persist{std::move(measured)});
    sub_model_seconds_[device] = seconds;
    RUNNEL_ASSIGN_OR_RETURN(times, planner_->Characterise(device, seconds));
  } else if (phase_ == Phase::kLayers) {
    times = DeviceTimes::ByLayer(seconds);
  } else if (ranges.size() < RangeCount(layers())) {
    times = DeviceTimes::ByLayer(LayersWithinParts(times.figures(), ranges, seconds));
  } else {
    times = DeviceTimes::ByRange(layers(), seconds);
  }
  return absl::OkStatus();
}

bool Measurement::SkipDevice(int device, const Roster& roster, RunEffects& effects) {
  if (!IsAsked(device)) {
    // It would have been asked later.
    std::erase(to_answer_.measured, device);
    std::erase(to_answer_.to_check, device);
    std::erase(answered_, device);
    return false;
  }
  GoOnWithout(device, roster, effects);
  return true;
}

void Measurement::AddProgress(int device, double share) {
  if (IsAsked(device)) shares_[static_cast<size_t>(device)] = share;
}

// Layers and parts take about as long, second times next to nothing.
double Measurement::Progress() const {
  if (!under_way() || phase_ == Phase::kSecond) return 1;
  const double sum = std::accumulate(shares_.begin(), shares_.end(), static_cast<double>(done_));
  const double share = sum / static_cast<double>(asked());
  if (in_turns() || Parts().empty()) return share;
  return phase_ == Phase::kParts ? 0.5 + share / 2 : share / 2;
}

double Measurement::ShareOf(int device) const {
  const double share = conditions_.at(device).processor_share;
  return share < kWholeProcessor ? share : 1;
}

std::vector<std::vector<int>> Measurement::AlikeLocals(const Roster& roster) const {
  std::vector<int> left;
  for (const int device : new_) {
    const auto found = conditions_.find(device);
    const bool has_answered = found != conditions_.end() && found->second.processor_share > 0 &&
                              !times_[static_cast<size_t>(device)].empty();
    const bool is_used = roster.device(device).local && !roster.device(device).barred;
    if (is_used && has_answered) left.push_back(device);
  }
  std::vector<std::vector<int>> classes;
  while (!left.empty()) {
    const int first = left.front();
    const DeviceTimes& first_times = times_[static_cast<size_t>(first)];
    const auto differs = [&](int device) {
      const DeviceTimes& times = times_[static_cast<size_t>(device)];
      return times.by_range() != first_times.by_range() ||
             times.figures().size() != first_times.figures().size() ||
             !(device == first ||
               AreAlike(roster.device(first).hello, roster.device(device).hello)) ||
             conditions_.at(device).backend != conditions_.at(first).backend;
    };
    const auto others = std::stable_partition(left.begin(), left.end(),
                                              [&](int device) { return !differs(device); });
    classes.emplace_back(left.begin(), others);
    left.erase(left.begin(), others);
  }
  return classes;
}

void Measurement::AverageAlike(const Roster& roster) {
  for (const std::vector<int>& alike : AlikeLocals(roster)) {
    if (alike.size() == 1) continue;
    const DeviceTimes& first = times_[static_cast<size_t>(alike.front())];
    // Of the processor: each had a share of its own.
    std::vector<double> mean(first.figures().size());
    for (const int device : alike) {
      const double weight = ShareOf(device) / static_cast<double>(alike.size());
      const std::vector<double>& own = times_[static_cast<size_t>(device)].figures();
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += weight * own[i];
    }
    const DeviceTimes whole =
        first.by_range() ? DeviceTimes::ByRange(first.layers(), mean) : DeviceTimes::ByLayer(mean);
    for (const int device : alike)
      times_[static_cast<size_t>(device)] = whole.Scaled(1 / ShareOf(device));
  }
}

void Measurement::BeginSecond(const Roster& roster, RunEffects& effects) {
  if (!is_first_ || options_.second_burst_ms <= 0) return;
  std::vector<int> locals;
  for (const std::vector<int>& alike : AlikeLocals(roster)) {
    for (const int device : alike) {
      if (!roster.lost()[static_cast<size_t>(device)]) locals.push_back(device);
    }
  }
  if (locals.empty()) return;
  const std::vector<LayerRange> runs = RunsAlikeInTime(
      times_[static_cast<size_t>(locals.front())].LayerSeconds(), static_cast<int>(locals.size()));
  for (size_t i = 0; i < locals.size(); ++i) {
    const LayerRange& range = runs[i % runs.size()];
    const double seconds = times_[static_cast<size_t>(locals[i])].Seconds(range);
    second_.Ask(locals[i], range, seconds * ShareOf(locals[i]));
  }
  phase_ = Phase::kSecond;
  done_ = 0;
  to_answer_.measured = std::move(locals);
  SendRequests(roster, effects);
}

void Measurement::TakeSecond(const Roster& roster) {
  for (const std::vector<int>& alike : AlikeLocals(roster)) {
    const double scale = second_.ScaleOf(alike, options_.local_at_once);
    for (const int device : alike) {
      DeviceTimes& times = times_[static_cast<size_t>(device)];
      times = times.Scaled(scale);
    }
  }
}

// The device has done its request.
void Measurement::GoOnWithout(int device, const Roster& roster, RunEffects& effects) {
  ++done_;
  shares_[static_cast<size_t>(device)] = 0;
  to_answer_.Remove(device);
  if (in_turns()) {
    // Checks of the hosts that have several, and devices that are not what they were taken for.
    if (to_answer_.checked.empty()) SendInTurns(roster, effects);
    return;
  }
  if (!to_answer_.measured.empty()) return SendRequests(roster, effects);
  if (phase_ == Phase::kSecond) return TakeSecond(roster);
  if (phase_ == Phase::kParts || Parts().empty()) {
    AverageAlike(roster);
    return BeginSecond(roster, effects);
  }
  phase_ = Phase::kParts;
  done_ = 0;
  to_answer_.measured = std::exchange(answered_, {});
  SendRequests(roster, effects);
}

}  // namespace runnel
