#pragma once

// Slow searches that the policy `runnel` is compared with.

#include <cstdint>

#include "partition/pipeline_model.h"

namespace runnel {

// ChargedPeriod of the simulation; infinite if it does not fit the memory.
double SimulatedCharge(const PipelineModel& model, const Placement& placement);
// All orders, subsets, cuts, caps and codecs; infinite if nothing fits.
Placement BestByTryingAll(const PipelineModel& model);
// The best of many climbs by simulation from random placements.
Placement BestOfRestarts(const PipelineModel& model, int restarts, int changes, uint64_t seed);

}  // namespace runnel
