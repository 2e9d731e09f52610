#pragma once

// One history of a cluster: a function of the scenario and the seed.

#include <cstdint>
#include <string>

#include "tests/sim/cluster/planted_bugs.h"
#include "tests/sim/cluster/scenario.h"

namespace runnel {

struct History {
  std::string violation;  // the first rule that was broken; empty: none
  uint64_t digest = 0;    // of all that was recorded
  double virtual_s = 0;
  int64_t losses = 0, recoveries = 0, plans = 0, commits = 0;
  int64_t faults = 0;
  std::string log;  // if it was asked for
};

// Faults first, as the scenario says; then they stop, everything heals, and the run must come to
// its end.
History RunHistory(const Scenario& scenario, uint64_t seed, PlantedBug bug = PlantedBug::kNone,
                   bool keeps_log = false);

}  // namespace runnel
