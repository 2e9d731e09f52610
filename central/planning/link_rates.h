#pragma once

// What links carry, as the stages measured it (proto/transport/link/bandwidth.h), kept by device so
// that it outlives a plan. Pure.

#include <cstddef>
#include <vector>

#include "central/records/stage_status.h"
#include "partition/pipeline_model.h"

namespace runnel {

// Bytes a second [from][to], by device number of the run; 0: that way was never measured. Empty:
// none was.
using LinkRates = std::vector<std::vector<double>>;

// Takes in what the stages of the plan that holds have measured, each direction apart; a way that
// says nothing keeps what it had. `devices`: of the run.
void NoteLinkRates(const std::vector<StageStatus>& stages, size_t devices, LinkRates& rates);

// The same rates times `factor`.
LinkRates Scaled(LinkRates rates, double factor);

// What a plan for `devices` (numbers of the run) takes each way for, by position in `devices`: what
// was measured; else what the user gave (`given`); where that is nothing, the way back; else the
// slowest that was measured from or to either of its ends, or else anywhere: a way that nobody has
// tried is not taken for a fast one. The delay is always the given one.
std::vector<std::vector<LinkSpeed>> SpeedsOf(const LinkRates& rates,
                                             const std::vector<int>& devices,
                                             const LinkSpeed& given);

}  // namespace runnel
