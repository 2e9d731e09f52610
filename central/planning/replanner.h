#pragma once

// Whether another plan is worth the move (AccEPT 3.2 and 3.5: |measured - predicted| > eps leads to
// a new plan; FTPipeHD: the capacity of a worker is measured over predicted time of its range). At
// each barrier the time that a stage took for a micro-batch corrects what its device is taken for,
// the policy plans anew, and the new plan is proposed if it saves more over what is left to train
// than moving costs - twice in a row, so that a short load on a device moves nothing. Pure: the
// same reports give the same proposals. One thread.
//
// What is corrected: a device's profile, by one factor for all of its layers (FTPipeHD), or, with a
// predictor, what that says of each range (AccEPT): a time within its epsilon is learned from. One
// that is off by more says that the device is not what it was: the factor corrects it, and if the
// next report says so too, its representative sub-models are measured again. What is still left
// then (others that compute beside the pipeline, not beside the measurement) stays a factor.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/planner.h"
#include "predictor/run/run_predictor.h"

namespace runnel {

struct ReplannerOptions {
  // The policy's plan for these devices (numbers of the run) with these seconds by device (as
  // PlanFor takes them).
  std::function<absl::StatusOr<Plan>(const std::vector<int>& devices,
                                     const std::vector<DeviceTimes>& times)>
      make_plan;
  // Predicted seconds a micro-batch of a plan.
  std::function<absl::StatusOr<double>(const Plan& plan, const std::vector<DeviceTimes>& times)>
      period_seconds;
  // Of a run whose bits follow its links, else null: the plan with the codecs that its links have
  // time for if they carried this share of what they do (RefitBits), and what a plan loses by its
  // codecs. make_plan may then be null: layers stay.
  std::function<absl::StatusOr<Plan>(const Plan& plan, const std::vector<DeviceTimes>& times,
                                     double bandwidth_share)>
      fit_bits;
  std::function<double(const Plan& plan)> coding_error;
  std::vector<int64_t> layer_state_bytes;  // parameters, momentum, statistics, by layer
  double link_bytes_per_second = 125e6;    // where no stage has measured one
  int64_t micro_batches_a_step = 1;
  int64_t stop_step = 0;
  double fixed_move_seconds = 1;  // of a move without its bytes
  double min_gain = 0.1;          // share of the period that a new plan must save
  int confirmations = 2;          // reports in a row that must want a move, or a measurement
  int64_t min_micro_batches = 5;  // fewer in a report say nothing
  // Borrowed; it knows every device of the run. Null: the times of the report are a profile.
  RunPredictor* predictor = nullptr;
  // Of measuring a device's representatives again: how often each runs, what is added to that, and
  // the share of the time left to train that it may take.
  int64_t measured_runs = 11;
  double fixed_measure_seconds = 2;
  double max_measure_share = 0.1;
};

class Replanner {
 public:
  explicit Replanner(ReplannerOptions options) : options_(std::move(options)) {}

  // A ToMeasureFn. Takes the report in. None without a predictor.
  std::vector<int> ToMeasure(const BarrierReport& report);
  // A ReplanFn; at one barrier after ToMeasure, whose devices have been characterised anew if that
  // was possible. None where nothing was profiled, nothing new is known, or the old plan is good
  // enough.
  std::optional<ChangePlan> AtBarrier(const BarrierReport& report);

  // Measured over profiled (or predicted) time, by device, as the last report left it.
  const std::vector<double>& slowdowns() const { return slowdowns_; }

 private:
  // What a stage had done when it was last looked at.
  struct Seen {
    int64_t backwards = 0;
    int64_t busy_ns = 0;
    int64_t busy_processor_ns = 0;
  };
  // With a predictor: how a device's reports compare with it.
  struct Comparison {
    double settled = 1;  // what a measurement did not explain
    int reports_off = 0;
    int patience = 1;  // doubled whenever measuring again explained nothing
  };

  void Take(const BarrierReport& report);
  bool Measure(const BarrierReport& report);
  std::optional<double> TakeStage(const Telemetry& telemetry, double processor_share, Seen& seen);
  void Compare(int device, const Observation& now);
  void Settle();
  bool IsWorthMeasuring(const BarrierReport& report, int device) const;
  std::vector<DeviceTimes> Corrected(const BarrierReport& report) const;
  double MoveSeconds(const BarrierReport& report, const Plan& next) const;
  // replanner_bits.cc
  absl::StatusOr<Plan> NextPlan(const BarrierReport& report, const std::vector<int>& devices,
                                const std::vector<DeviceTimes>& seconds) const;
  bool IsMoreExact(const Plan& plan, const Plan& next, double now_seconds,
                   double next_seconds) const;
  std::string OffText(const BarrierReport& report) const;

  ReplannerOptions options_;
  Generation generation_;         // of the plan that seen_ is about
  std::vector<Seen> seen_;        // by stage
  std::optional<int64_t> taken_;  // step of the report that was taken in last
  bool enough_ = false;           // that report says something of every stage
  std::vector<double> slowdowns_;
  std::vector<Comparison> comparisons_;  // by device
  std::map<int, Observation> changed_;   // devices that are not what they were, and what they took
  int wanted_ = 0;                       // reports in a row
};

}  // namespace runnel
