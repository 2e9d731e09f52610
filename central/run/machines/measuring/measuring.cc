#include "central/run/machines/measuring/measuring.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace runnel {

void Measuring::Order(const MeasureDevices& what, int64_t step) {
  step_ = step;
  if (!next_.has_value()) next_.emplace();
  // One that came back twice is asked once: a second answer would be taken for another request's.
  const auto append = [](const std::vector<int>& from, std::vector<int>& to) {
    for (const int device : from) {
      if (std::find(to.begin(), to.end(), device) == to.end()) to.push_back(device);
    }
  };
  append(what.devices, next_->devices);
  append(what.paths, next_->paths);
}

bool Measuring::GoOn(const ActivePlan& active, bool states_under_way, const Roster& roster,
                     RunEffects& effects) {
  if (links_.under_way() || devices_.under_way()) return false;
  if (next_.has_value()) {
    // Ordered before they were lost.
    const auto is_lost = [&roster](int device) {
      return roster.lost()[static_cast<size_t>(device)];
    };
    std::erase_if(next_->paths, is_lost);
    std::erase_if(next_->devices, is_lost);
  }
  is_first_ = active.plan.stages.empty();
  if (next_.has_value() && !next_->paths.empty()) {
    if (states_under_way) return false;
    const std::vector<int> paths = std::exchange(next_->paths, {});
    for (const int device : paths) {
      if (is_first_) break;
      effects.push_back(
          LogLine{Severity::kInfo,
                  absl::StrCat("step ", step_, ": worker ", roster.name(device),
                               " may get layers again, the link to it is measured first")});
    }
    links_.Begin(paths, is_first_ ? LinkProbe::Media::kFind : LinkProbe::Media::kAsKnown, roster,
                 effects);
    if (links_.under_way()) return false;
  }
  if (!next_.has_value()) return true;
  std::vector<int> devices = std::exchange(next_, std::nullopt)->devices;
  if (devices.empty()) return true;
  for (const int device : devices) LogWhy(device, active, roster, effects);
  devices_.Begin(std::move(devices), step_, active.plan.generation, roster, effects);
  return false;
}

void Measuring::LogWhy(int device, const ActivePlan& active, const Roster& roster,
                       RunEffects& effects) const {
  if (is_first_) return;
  const auto at = static_cast<size_t>(device);
  const bool is_new = at >= devices_.times().size() || devices_.times()[at].empty();
  const char* why = is_new ? " is new, it is measured"
                    : active.plan.Uses(device)
                        ? " is not what it was, its sub-models are measured again"
                        : " was slow and may get layers again, it is measured first";
  effects.push_back(LogLine{Severity::kInfo,
                            absl::StrCat("step ", step_, ": worker ", roster.name(device), why)});
}

void Measuring::LogKept(const Roster& roster, RunEffects& effects) const {
  if (devices_.kept().empty()) return;
  const auto name = [&roster](std::string* out, int device) {
    absl::StrAppend(out, roster.name(device));
  };
  effects.push_back(LogLine{
      Severity::kInfo,
      absl::StrCat("measured in an earlier run: ", absl::StrJoin(devices_.kept(), ", ", name))});
}

void Measuring::Cancel() {
  next_.reset();
  links_.Cancel();
  devices_.Cancel();
}

bool Measuring::Add(int device, const WayMeasured& measured, const Roster& roster,
                    RunEffects& effects) {
  if (!links_.under_way()) return false;
  links_.AddReport(device, measured, roster, effects);
  return !links_.under_way();
}

bool Measuring::Add(int device, const ProbePiece& piece, const Roster& roster,
                    RunEffects& effects) {
  if (!links_.under_way()) return false;
  links_.AddPiece(device, piece, roster, effects);
  return !links_.under_way();
}

absl::StatusOr<bool> Measuring::Add(int device, const ProfileReport& report, Roster& roster,
                                    RunEffects& effects) {
  const bool is_second = devices_.is_second();
  RUNNEL_ASSIGN_OR_RETURN(const bool counts, devices_.AddReport(device, report, roster, effects));
  if (!counts) return false;
  if (!is_second) roster.SetMeasured(device, report);
  if (devices_.under_way()) return false;
  LogKept(roster, effects);
  return true;
}

absl::StatusOr<bool> Measuring::Add(int device, const ProfileFailed& failed, Roster& roster,
                                    RunEffects& effects) {
  if (!devices_.IsAbout(failed.generation) || !devices_.IsAsked(device)) return false;
  if (devices_.is_second()) {
    effects.push_back(
        LogLine{Severity::kInfo,
                absl::StrCat("worker ", roster.name(device), " could not measure a second time (",
                             failed.reason, "): its first times count")});
    devices_.SkipDevice(device, roster, effects);
    if (devices_.under_way()) return false;
    LogKept(roster, effects);
    return true;
  }
  const absl::Status failure = roster.FailureOf(device, failed.reason, failed.unfit);
  if (is_first_ && !roster.Bar(device)) return failure;
  devices_.SkipDevice(device, roster, effects);
  const std::string what =
      absl::StrCat("worker ", roster.name(device), " could not measure (", failed.reason, ")");
  effects.push_back(LogLine{
      Severity::kWarning,
      is_first_ ? absl::StrCat(what, ": the start goes on without it")
                : absl::StrCat("step ", step_, ": ", what, "; plans go by what was known of it")});
  if (devices_.under_way()) return false;
  const std::vector<DeviceTimes>& times = devices_.times();
  if (is_first_ &&
      std::all_of(times.begin(), times.end(), [](const auto& one) { return one.empty(); }))
    return failure;
  LogKept(roster, effects);
  return true;
}

bool Measuring::Skip(int device, const Roster& roster, RunEffects& effects) {
  if (links_.under_way()) {
    links_.Skip(device, roster, effects);
    return !links_.under_way();
  }
  if (!devices_.under_way() || !devices_.SkipDevice(device, roster, effects)) return false;
  if (devices_.under_way()) return false;
  LogKept(roster, effects);
  return true;
}

}  // namespace runnel
