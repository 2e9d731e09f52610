#pragma once

// Rates and delays of links, as paths were probed and as stages measure them
// (proto/transport/link/bandwidth.h, round_trip.h), kept by device so that they outlive a plan.
// Pure functions; any thread.

#include <cstddef>
#include <string>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/records/stage_status.h"
#include "partition/pipeline_model.h"
#include "proto/base/plan/link_rate.h"

namespace runnel {

// [from][to], by device number of the run. Empty: nothing was measured.
using LinkRates = std::vector<std::vector<WayFigures>>;

// Paths that share their bandwidth.
struct SharedMedium {
  std::vector<int> devices;  // numbers
  LinkRate rate;             // rate of its fastest direction by itself
  bool half_duplex = false;
};
std::vector<SharedMedium> MediaOf(const std::vector<DeviceFacts>& devices);

// "links of pi-1 and pi-2 share 9.6 Mbps, both ways together"; empty without media.
std::string MediaText(const std::vector<SharedMedium>& media,
                      const std::vector<DeviceFacts>& devices);

// Records the measurements of the current plan's stages: rates in each direction, delays as half of
// the round trip. A direction without a measurement keeps its figures. A direction on a medium may
// have been measured beside others: its rate by itself stays as long as they explain the
// difference. devices: number of devices of the run.
void RecordLinkRates(const std::vector<StageStatus>& stages, size_t devices, LinkRates& rates);

// Links that go by way of central take its way in and its way out, in both directions: whatever
// leaves by the same one of central's paths shares it. Sets WayFigures::medium of the ways between
// devices on two other hosts: those that are relayed now (`stages`), and those between two devices
// that nobody can dial. Where both ends' paths were probed and share nothing, central's network is
// not what holds them up; where nothing was probed, all relayed links share it.
void SetRelayedWays(const std::vector<StageStatus>& stages, const std::vector<DeviceFacts>& devices,
                    LinkRates& rates);

// Rates of directions between the devices on central's host, and between them and the others.
// Empty: no path was measured. added_delay_seconds: the delay of --link-delay-ms, which the control
// streams of the paths lack.
LinkRates RatesOfPaths(const std::vector<DeviceFacts>& devices, double added_delay_seconds);

// Records measurements of the paths to these devices at a barrier. A direction without a rate keeps
// its old one.
void RecordPaths(const std::vector<DeviceFacts>& devices, const std::vector<int>& measured,
                 double added_delay_seconds, LinkRates& rates);

// Lets rates of directions without a link in the plan return, a tenth at each call, to their
// figures before training (`first`), else to the best figure from or to their ends: a link that was
// slow once is tried again. refusals: by device, the number of vain tries of its path; each halves
// the tenth, so that a link that stays slow costs less and less.
void ForgetIdleWays(const std::vector<StageStatus>& stages, const LinkRates& first,
                    const std::vector<int>& refusals, LinkRates& rates);

LinkRates ScaleRates(LinkRates rates, double factor);

// The speed that a plan for `devices` (numbers of the run) assumes of each direction, by position
// in `devices`. Rate and delay are each the first known figure of:
//   1. the measured one;
//   2. the measured one of the opposite direction;
//   3. the worst from or to either end, else the worst of all: an untried direction does not count
//      as a good one;
//   4. the user's (`given`), which also bounds 2 and 3.
std::vector<std::vector<LinkSpeed>> SpeedsOf(const LinkRates& rates,
                                             const std::vector<int>& devices,
                                             const LinkSpeed& given);

}  // namespace runnel
