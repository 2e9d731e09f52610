#pragma once

// What is measured before a plan is made, one thing after the other:
//
//   before the first plan   the paths to workers on other hosts, then devices
//   at a barrier            what the planner asks for: paths that no stage uses, then devices that
//                           are new or not what they were
//
// Pure: events in, effects out. The owner calls GoOn after each event that says so, and makes a
// plan when GoOn says that all is measured.

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/planner.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/measuring/link_probe.h"
#include "central/run/machines/measuring/measurement.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

class Measuring {
 public:
  // planner: borrowed.
  Measuring(MeasurementOptions options, Planner* planner) : devices_(std::move(options), planner) {}

  // At barrier `step`, or (0: also) before the first plan, beside what is ordered already. GoOn
  // begins with it.
  void Order(const MeasureDevices& what, int64_t step);
  // Begins with what is next, if nothing is under way. active: without stages before the first
  // plan. states_under_way: a path waits until they are through, since a state on its way would be
  // measured as a slow link. True: all is measured.
  bool GoOn(const ActivePlan& active, bool states_under_way, const Roster& roster,
            RunEffects& effects);
  // What is ordered or under way is not waited for; what was known stays.
  void Cancel();

  // Answers of a device; what nobody asked it for is ignored. True: what was under way is measured,
  // GoOn is due.
  bool Add(int device, const WayMeasured& measured, const Roster& roster, RunEffects& effects);
  bool Add(int device, const ProbePiece& piece, const Roster& roster, RunEffects& effects);
  // Errors as Measurement::AddReport.
  absl::StatusOr<bool> Add(int device, const ProfileReport& report, Roster& roster,
                           RunEffects& effects);
  // It could not. InvalidArgument, Aborted: without it there is no first plan. At a barrier it has
  // its stage, and what was known of it stays.
  absl::StatusOr<bool> Add(int device, const ProfileFailed& failed, const Roster& roster,
                           RunEffects& effects);
  bool Add(int device, const ProfileProgress& progress) {
    if (devices_.IsAbout(progress.generation)) devices_.AddProgress(device, progress.share);
    return false;
  }
  // The device has left: what is measured of it is not waited for.
  bool Skip(int device, const Roster& roster, RunEffects& effects);

  // Something is ordered and has not begun.
  bool waits() const { return next_.has_value(); }
  const LinkProbe& links() const { return links_; }
  const Measurement& devices() const { return devices_; }

 private:
  void LogKept(const Roster& roster, RunEffects& effects) const;
  void LogWhy(int device, const ActivePlan& active, const Roster& roster,
              RunEffects& effects) const;

  LinkProbe links_;
  Measurement devices_;
  std::optional<MeasureDevices> next_;
  int64_t step_ = 0;
  bool is_first_ = true;  // no plan holds yet
};

}  // namespace runnel
