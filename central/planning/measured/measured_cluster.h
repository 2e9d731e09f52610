#pragma once

// Measured figures of a run's devices and of the links between them.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "central/planning/measured/link_rates.h"
#include "partition/noise_ratios.h"
#include "partition/pipeline_model.h"
#include "proto/base/plan/device_costs.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/training/grid_bits.h"

namespace runnel {

struct DeviceMemory {
  std::string name;
  int64_t may_take_bytes = 0;  // its worker, the program included; 0: not known, no limit
  // Name of the GPU's or DSP's memory that the limit is about; empty: the worker's memory.
  std::string memory_of = {};
};

// All vectors are by device number.
struct MeasuredCluster {
  std::vector<DeviceTimes> times = {};  // empty: nothing was measured
  LinkRates rates = {};                 // empty: no link was measured
  // Processor share of each device's computing thread; empty: a whole processor each.
  std::vector<double> processor_shares = {};
  std::vector<DeviceMemory> memory = {};  // empty: of none
  // Costs of coding and transport that each device measured; empty: none.
  std::vector<DeviceCosts> costs = {};
  // Whether each device is on central's host; empty: none.
  std::vector<bool> on_host = {};
  // Processors that the computing threads on central's host share; 0: each device's share of one is
  // its own, whatever the others do.
  double host_processors = 0;
  // Of these, what was free when the workers there measured; 1: all.
  double free_share = 1;
  // DeviceTimes::Sum when the shares were measured; empty: that of `times`. Later corrections of
  // `times` concern computation only: how long the transport takes since then is not known.
  std::vector<double> profiled_sums = {};
  // Pause of computation at a barrier, from the last end to the first start; 0: not known.
  double barrier_pause_seconds = 0;
  int64_t barrier_every = 0;      // steps between barriers, where a rule decides; 0: the run's
  NoiseRatios noise_ratios = {};  // PlanRequest
  // Bits that codec `recipe` has at present; 0/0: those of the run's first step.
  GridBits link_bits = {};

  // Whether the device shares host_processors with the others on central's host.
  bool SharesHost(size_t device) const {
    return host_processors > 0 && device < on_host.size() && on_host[device];
  }
  // How many of these devices do.
  double OnHost(const std::vector<int>& devices) const {
    return static_cast<double>(std::count_if(devices.begin(), devices.end(), [this](int device) {
      return SharesHost(static_cast<size_t>(device));
    }));
  }
  // Whether more of these devices do than there are processors. Predictions then share those out.
  bool CrowdHost(const std::vector<int>& devices) const {
    return OnHost(devices) > host_processors;
  }
  // Of a whole processor, what the device has while all of these compute, as far as they share it.
  double SpeedAmong(const std::vector<int>& devices, int device) const {
    if (!SharesHost(static_cast<size_t>(device))) return 1;
    return SpeedOnHost(host_processors, OnHost(devices));
  }
};

}  // namespace runnel
