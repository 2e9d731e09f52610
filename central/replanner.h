#pragma once

// Whether another plan is worth the move (AccEPT 3.2 and 3.5: |measured - predicted| > eps leads to
// a new plan; FTPipeHD: the capacity of a worker is measured over predicted time of its range). At
// each barrier the time that a stage took for a micro-batch corrects its device's profile, the
// policy plans anew, and the new plan is proposed if it saves more over what is left to train than
// moving costs - twice in a row, so that a short load on a device moves nothing. Pure: the same
// reports give the same proposals. One thread.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/coordinator.h"

namespace runnel {

struct ReplannerOptions {
  // The policy's plan for these devices (numbers of the run) with these seconds by device and
  // layer.
  std::function<absl::StatusOr<Plan>(const std::vector<int>& devices,
                                     const std::vector<std::vector<double>>& layer_seconds)>
      make_plan;
  // Predicted seconds a micro-batch of a plan.
  std::function<absl::StatusOr<double>(const Plan& plan,
                                       const std::vector<std::vector<double>>& layer_seconds)>
      period_seconds;
  // Of a run whose bits follow its links, else null: the plan with the codecs that its links have
  // time for if they carried this share of what they do (RefitBits), and what a plan loses by its
  // codecs. make_plan may then be null: layers stay.
  std::function<absl::StatusOr<Plan>(const Plan& plan,
                                     const std::vector<std::vector<double>>& layer_seconds,
                                     double bandwidth_share)>
      fit_bits;
  std::function<double(const Plan& plan)> coding_error;
  std::vector<int64_t> layer_state_bytes;  // parameters, momentum, statistics, by layer
  double link_bytes_per_second = 125e6;    // where no stage has measured one
  int64_t micro_batches_a_step = 1;
  int64_t stop_step = 0;
  double fixed_move_seconds = 1;  // of a move without its bytes
  double min_gain = 0.1;          // share of the period that a new plan must save
  int confirmations = 2;          // reports in a row that must want a move
  int64_t min_micro_batches = 5;  // fewer in a report say nothing
};

class Replanner {
 public:
  explicit Replanner(ReplannerOptions options) : options_(std::move(options)) {}

  // A ReplanFn. None where nothing was profiled, nothing new is known, or the old plan is good
  // enough.
  std::optional<BetterPlan> AtBarrier(const BarrierReport& report);

  // Measured over profiled time, by device, as the last report left it.
  const std::vector<double>& slowdowns() const { return slowdowns_; }

 private:
  // What a stage had done when it was last looked at.
  struct Seen {
    int64_t backwards = 0;
    int64_t busy_ns = 0;
  };

  bool Measure(const BarrierReport& report);
  std::vector<std::vector<double>> Corrected(const BarrierReport& report) const;
  double MoveSeconds(const BarrierReport& report, const Plan& next) const;
  // replanner_bits.cc
  absl::StatusOr<Plan> NextPlan(const BarrierReport& report, const std::vector<int>& devices,
                                const std::vector<std::vector<double>>& seconds) const;
  bool IsMoreExact(const Plan& plan, const Plan& next, double now_seconds,
                   double next_seconds) const;

  ReplannerOptions options_;
  Generation generation_;   // of the plan that seen_ is about
  std::vector<Seen> seen_;  // by stage
  std::vector<double> slowdowns_;
  int wanted_ = 0;  // reports in a row
};

}  // namespace runnel
