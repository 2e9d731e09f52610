#pragma once

// Measurements before a plan is made, one after the other:
//
//   before the first plan   the paths to workers on other hosts, then devices
//   at a barrier            the planner's orders: paths that no stage uses, then devices that are
//                           new or have changed
//
// Pure: events in, effects out. The owner calls GoOn after each event that asks for it, and makes a
// plan when GoOn answers that all is measured.

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

  // Orders measurements at barrier `step`, or (0: also) before the first plan, beside earlier
  // orders. GoOn begins with them.
  void Order(const MeasureDevices& what, int64_t step);
  // Begins the next measurement, if none is under way. active: without stages before the first
  // plan. states_under_way: a path waits until they are through, since a state on its way would
  // make the link look slow. True: all is measured.
  bool GoOn(const ActivePlan& active, bool states_under_way, const Roster& roster,
            RunEffects& effects);
  // Drops measurements ordered or under way; earlier figures stay.
  void Cancel();

  // Takes answers of a device; ignored if it was not asked. True: the current measurement is
  // complete, GoOn is due.
  bool Add(int device, const WayMeasured& measured, const Roster& roster, RunEffects& effects);
  bool Add(int device, const ProbePiece& piece, const Roster& roster, RunEffects& effects);
  // Errors as Measurement::AddReport.
  absl::StatusOr<bool> Add(int device, const ProfileReport& report, Roster& roster,
                           RunEffects& effects);
  // The device could not measure. Before the first plan it is left out; InvalidArgument, Aborted:
  // there is no plan without it. At a barrier it keeps its stage and its earlier figures.
  absl::StatusOr<bool> Add(int device, const ProfileFailed& failed, Roster& roster,
                           RunEffects& effects);
  bool Add(int device, const ProfileProgress& progress) {
    if (devices_.IsAbout(progress.generation)) devices_.AddProgress(device, progress.share);
    return false;
  }
  // The device has left: its measurement is not waited for.
  bool Skip(int device, const Roster& roster, RunEffects& effects);

  // Something is ordered and has not begun.
  bool waits() const { return next_.has_value(); }
  const LinkProbe& links() const { return links_; }
  // As LinkProbe::Forget.
  void ForgetPath(int device) { links_.Forget(device); }
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
