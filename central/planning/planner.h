#pragma once

// Decides which device runs which layers. The coordinator asks a planner for the first plan and at
// every barrier; a planner never calls back.

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/barrier_report.h"
#include "central/records/journal.h"
#include "central/records/summary.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/plan/plan.h"

namespace runnel {

// The plan that holds goes on.
struct KeepPlan {};

// Measure these devices (numbers) and the paths between central's host and those, then ask again at
// the same barrier. What has no stage is measured before layers move there.
struct MeasureDevices {
  std::vector<int> devices;
  std::vector<int> paths = {};  // numbers of devices on other hosts
  // Training need not stand meanwhile: these are devices without a stage, and no paths.
  bool beside = false;
};

// Another plan from this barrier on. The coordinator gives it its generation.
struct ChangePlan {
  Plan plan;
  std::string why;  // reason, for people
  // Times that the plan was made from, for the journal; empty: as in the report.
  std::vector<DeviceTimes> times = {};
};

// Measurements of each device that the planner needs before the first plan.
struct ProfileNeeds {
  bool devices = false;              // false: nothing
  std::vector<LayerRange> ranges{};  // empty: each layer by itself, then parts (layer_profile.h)
  std::vector<std::string> cost_codecs{};  // codecs whose coding devices time
  bool first_only = false;                 // the first device alone; the others' times are empty
};

using BarrierDecision = std::variant<KeepPlan, MeasureDevices, ChangePlan>;

// Deterministic: the same calls give the same answers, but for a search beside the training, whose
// answer comes when it comes. What is decided is journalled. One thread.
class Planner {
 public:
  virtual ~Planner() = default;

  virtual ProfileNeeds profile_needs() const = 0;

  // Whether the path between central's host and this device is measured before the first plan.
  virtual bool ProbesPath(const std::vector<DeviceFacts>& /*devices*/, int /*device*/) const {
    return false;
  }

  // Cuts the model over `devices`, which are in pipeline order. times: by device number; empty:
  // nothing was measured, of one device or of all. Called before AtBarrier, again with other devices
  // after an error. The coordinator gives the plan its generation. Errors name what does not fit and
  // the fix.
  virtual absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>& devices,
                                         const std::vector<DeviceTimes>& times) = 0;

  // After MeasureDevices it is called again for the same step, with the new figures of devices and
  // paths that could be measured; figures measured beside the training are there at a later step.
  // It answers MeasureDevices at most twice at a step.
  virtual BarrierDecision AtBarrier(const BarrierReport& report) = 0;

  // Workers were lost, or leave, that the plan of `report` uses (DeviceFacts::is_lost): a plan over
  // the others, stage 0 on a local one. Called at any time after FirstPlan. Errors say why no plan
  // fits.
  virtual absl::StatusOr<Plan> PlanForSurvivors(const BarrierReport& report) = 0;

  // All times of a device, from its measured ranges (ProfileNeeds::ranges, in that order). Called
  // whenever a device was measured and there are such ranges. InvalidArgument: another number of
  // times, or one that is no time.
  virtual absl::StatusOr<DeviceTimes> Characterise(int device,
                                                   const std::vector<double>& seconds) = 0;

  // What the codecs of the plan that holds were measured to add to the gradients' noise: plans from
  // now on are charged by it.
  virtual void SetNoise(const NoiseMeasured& /*noise*/) {}

  // An operator wants the next AtBarrier to plan anew by what is measured then.
  // FailedPrecondition: this planner cannot, why.
  virtual absl::Status OrderReplan() {
    return absl::FailedPreconditionError(
        "layers do not move in this run: its plan was given, or nothing was measured");
  }

  // ---- for the journal

  // Figures of links at the first plan; none: nothing was known.
  virtual std::optional<LinksKnown> KnownLinks() const { return std::nullopt; }

  // ---- for people

  // The bandwidth that `plan` assumes of its links.
  virtual PlanBandwidth AssumedBandwidth(const Plan& plan) const = 0;
  // Why the first plan is as it is, a line; empty: there is nothing to say.
  virtual std::string Explanation() const { return ""; }
  // A line about the last report, given once; empty: nothing.
  virtual std::string TakeRemark() { return ""; }
  // Comparison of the last report.
  virtual PeriodComparison period() const { return {}; }
  virtual PlanSearches searches() const { return {}; }
  // Lines about the plan that would be made under an assumption (what_if.h) in place of `decided`,
  // which holds. They are searched for by calling what is returned, on any thread, when the planner
  // may be gone. FailedPrecondition: this planner measures nothing that it could tell from.
  using LateAnswer = std::function<absl::StatusOr<std::string>()>;
  virtual absl::StatusOr<LateAnswer> WhatIf(const std::string& /*assumption*/,
                                            const PlanDecided& /*decided*/) const {
    return absl::FailedPreconditionError(
        "nothing was measured that this could be told from: --policy runnel measures");
  }
  // Prediction of the first plan, by simulation; 0: nothing was measured, or the plan came from
  // elsewhere.
  virtual double predicted_samples_per_s() const = 0;
};

}  // namespace runnel
