#pragma once

// Scenarios that nobody thought of: topology, delays, caps, intervals, switches and faults are drawn
// from a number, each switch and each kind of fault off in about half of them, since what is always
// on hides what it never meets alone.

#include <cstdint>
#include <string>

#include "tests/sim/cluster/scenario.h"

namespace runnel {

// The text of a scenario file: a function of `number`.
std::string DrawnText(uint64_t number);
Scenario DrawScenario(uint64_t number);

}  // namespace runnel
