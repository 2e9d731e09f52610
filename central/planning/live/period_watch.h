#pragma once

// Compares, at each report, the measured time of a micro-batch with the prediction of the plan. If
// they differ, the pipeline model is wrong somewhere. This finds the place: the stage or link whose
// measured figure moves the prediction most, or the waiting, if the prediction is wrong with all
// figures as measured.

#include <optional>
#include <string>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/planning/live/period_parts.h"
#include "central/planning/measured/measured_cluster.h"
#include "central/planning/measured/stage_pace.h"
#include "central/planning/plan_maker.h"
#include "central/records/summary.h"

namespace runnel {

// Deterministic. One thread.
class PeriodWatch {
 public:
  // A difference up to this share of the prediction is none.
  static constexpr double kAlike = 0.15;
  // A report about fewer micro-batches waits for the next.
  static constexpr int64_t kLeastMicroBatches = 5;

  // `maker` is borrowed.
  explicit PeriodWatch(const PlanMaker* maker) : maker_(maker) {}

  // `made_from`: the figures that the report's plan was made from; the same at every report of a
  // plan. `rates`: as measured by now. A plan that was made without times predicts nothing.
  void Report(const BarrierReport& report, const MeasuredCluster& made_from,
              const LinkRates& rates);

  // The comparison of the last report; predicted_seconds 0: nothing is known.
  const PeriodComparison& comparison() const { return comparison_; }
  // A line for people, once for each new cause that makes the run slower; empty until there is one.
  std::string TakeRemark();

 private:
  // The figure that is off: each has a number of its own, 0 is none.
  struct Cause {
    size_t term = 0;
    std::string text;
  };

  // Seconds of each stage, by the sums of its telemetry; none: too little was done.
  std::optional<std::vector<StagePace::Figures>> StageFigures(const BarrierReport& report,
                                                              const MeasuredCluster& made_from);
  Cause FindCause(const BarrierReport& report, const MeasuredCluster& made_from,
                  const LinkRates& rates) const;
  // `made_from` with what was measured since of the plan's stages and links.
  MeasuredCluster AsMeasured(const BarrierReport& report, const MeasuredCluster& made_from,
                             const LinkRates& rates) const;
  double Predict(const Plan& plan, const MeasuredCluster& cluster) const;
  // Other cuts, more memory, more micro-batches, where the plan as it is takes now_seconds; searched
  // for once a plan, since stages wait. Later only the proportions count.
  OtherWays FindOtherWays(const BarrierReport& report, const MeasuredCluster& measured,
                          double now_seconds);
  OtherWays SearchOtherWays(const BarrierReport& report, const MeasuredCluster& measured,
                            double now_seconds) const;
  std::optional<OtherWay> OtherCut(const BarrierReport& report, const MeasuredCluster& measured,
                                   bool has_memory) const;
  std::optional<OtherWay> MoreMicroBatches(const BarrierReport& report,
                                           const MeasuredCluster& measured) const;

  const PlanMaker* maker_;
  Generation generation_;         // generation of the plan that paces_ is about
  std::vector<StagePace> paces_;  // by stage
  int64_t micro_batches_ = 0;     // micro-batches of the last report
  PeriodComparison comparison_;
  struct Searched {
    double now_seconds = 0;  // of the plan, by the figures of the search; 0: none was made
    OtherWays found = {};
  };
  Searched searched_;
  size_t said_ = 0;     // the term of the last report's cause
  std::string remark_;  // to be said
};

}  // namespace runnel
