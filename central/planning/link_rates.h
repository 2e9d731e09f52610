#pragma once

// What links carry, as the stages measured it (proto/transport/link/bandwidth.h), kept by device so
// that it outlives a plan. Pure functions; any thread.

#include <cstddef>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/records/stage_status.h"
#include "partition/pipeline_model.h"
#include "proto/base/training/link_rate.h"

namespace runnel {

// [from][to], by device number of the run. A rate that is not set: that way was never measured.
// Empty: none was.
using LinkRates = std::vector<std::vector<LinkRate>>;

// Records what the stages of the plan that holds have measured, each direction apart. A way that
// says nothing keeps its rate. devices: how many the run has.
void RecordLinkRates(const std::vector<StageStatus>& stages, size_t devices, LinkRates& rates);

// Of the ways between device 0, which is on central's host, and the others.
LinkRates RatesOfPaths(const std::vector<DeviceFacts>& devices);

LinkRates ScaleRates(LinkRates rates, double factor);

// What a plan for `devices` (numbers of the run) takes each way for, by position in `devices`. The
// first of these that is known:
//   1. what was measured;
//   2. what the user gave (`given`);
//   3. the rate of the way back;
//   4. the slowest rate from or to either end; else the slowest of all. A way that nobody has tried
//      is not taken for a fast one.
// The delay is always the given one.
std::vector<std::vector<LinkSpeed>> SpeedsOf(const LinkRates& rates,
                                             const std::vector<int>& devices,
                                             const LinkSpeed& given);

}  // namespace runnel
