#pragma once

// What the time of a micro-batch is made of, and what would make it shorter: the pipeline with its
// measured figures is simulated again with one of them changed.

#include <functional>
#include <string>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/planning/measured/measured_cluster.h"
#include "central/records/summary.h"

namespace runnel {

// Seconds a micro-batch of the report's plan with these figures; 0: they cannot be told.
using PredictPeriodFn = std::function<double(const MeasuredCluster&)>;

// Another plan, or the same with another setting: seconds a micro-batch that it would take; 0: they
// cannot be told.
struct OtherWay {
  std::string what;
  double seconds = 0;
};
struct OtherWays {
  std::vector<OtherWay> ways = {};
  // Seconds a micro-batch that the limits of memory cost.
  double memory_seconds = 0;
};

// between_barriers: with filling and draining, as the measured time has them; steady: without what
// barriers add.
struct PeriodModel {
  PredictPeriodFn between_barriers;
  PredictPeriodFn steady;
};

// `comparison`: what was measured up to this report. `measured`: figures of devices and links as
// they were measured, with which the model explains the measured time as far as it can. The parts'
// sum, but for memory_seconds, is the measured time. What another figure or way brings is a share of
// the model's time, and that share of the measured one is what it would bring; a help is listed from
// kWorthSaying on.
inline constexpr double kWorthSaying = 0.1;
PeriodParts TakeApart(const BarrierReport& report, const PeriodComparison& comparison,
                      const MeasuredCluster& measured, const PeriodModel& model,
                      const OtherWays& others = {});

// Adds evaluations to the parts: seconds a micro-batch for which training stands, which are on top
// of the measured time, and which it loses on the same processors, which are within.
void AddEvaluations(double standing_seconds, double beside_seconds, PeriodParts& parts);

}  // namespace runnel
