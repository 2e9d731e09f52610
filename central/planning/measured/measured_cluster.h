#pragma once

// What was measured of the devices of a run and of the links between them.

#include <cstdint>
#include <string>
#include <vector>

#include "central/planning/measured/link_rates.h"
#include "proto/base/plan/device_costs.h"
#include "proto/base/plan/device_times.h"

namespace runnel {

struct DeviceMemory {
  std::string name;
  int64_t may_take_bytes = 0;  // its worker, the program included; 0: not known, no limit
  // Not empty: the limit is that of a GPU's or DSP's memory of this name, where the program is not.
  std::string memory_of = {};
};

// All vectors are by device number.
struct MeasuredCluster {
  std::vector<DeviceTimes> times = {};  // empty: nothing was measured
  LinkRates rates = {};                 // empty: no link was measured
  // Of a processor, what the computing thread of each device gets; empty: all of one.
  std::vector<double> processor_shares = {};
  std::vector<DeviceMemory> memory = {};  // empty: of none
  // What each device said of coding and the transport; empty: nothing.
  std::vector<DeviceCosts> costs = {};
  // DeviceTimes::Sum when the shares were measured; empty: that of `times`. Later corrections of
  // `times` concern computation only: how long the transport takes since then is not known.
  std::vector<double> profiled_sums = {};
  // How long nothing computes at a barrier, from the last end to the first beginning; 0: not known.
  double barrier_pause_seconds = 0;
};

}  // namespace runnel
