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

// `comparison`: what was measured up to this report. `measured`: figures of devices and links as
// they were measured, with which `predict` explains the measured time as far as it can. The parts'
// sum is the measured time; a help is listed if it takes off at least kWorthSaying of that.
inline constexpr double kWorthSaying = 0.1;
PeriodParts TakeApart(const BarrierReport& report, const PeriodComparison& comparison,
                      const MeasuredCluster& measured, const PredictPeriodFn& predict,
                      const std::vector<OtherWay>& others = {});

}  // namespace runnel
