#pragma once

// Chooses packed weights of a program that keep a place of their own when there is no room for all:
// enumerated when the program is made ready, and stored (Mandheling, MobiCom 2022, section 3.6, for
// fewer than 100 graphs). The others share the rest by the rule of dsp/regions.h. Pure functions;
// any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace runnel::hexagon {

// Programs with as many regions, or more, go by the rule alone.
inline constexpr size_t kMostPlannedRegions = 100;

struct EvictionPlan {
  // By region: its offset among the kept ones; below 0: it has no place of its own.
  std::vector<int64_t> places;
  uint32_t kept_bytes = 0;      // at the memory's end; the rule has the rest
  double packed_per_cycle = 0;  // bytes that are packed again in each cycle
};

// regions: packed bytes, in the order in which a cycle uses them, each once. memory_bytes: for all
// of them. No plan packs more than the rule alone, since that is one of the plans that are
// compared; one that packs as much keeps nothing.
EvictionPlan PlanEvictions(const std::vector<uint32_t>& regions, uint32_t memory_bytes);

// Bytes that a cycle packs again in the long run, if the regions of `keeps` keep a place. Infinite:
// another region would have no room.
double PackedPerCycle(const std::vector<uint32_t>& regions, const std::vector<bool>& keeps,
                      uint32_t memory_bytes);

}  // namespace runnel::hexagon
