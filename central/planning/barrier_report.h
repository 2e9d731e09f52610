#pragma once

// What is known of the devices and of the pipeline when a plan is made or looked at again.

#include <cstdint>
#include <string>
#include <vector>

#include "central/records/stage_status.h"
#include "proto/base/device_times.h"
#include "proto/base/ids.h"
#include "proto/base/plan.h"

namespace runnel {

// A worker that takes part, as far as plans depend on it. Its number in plans (DeviceId) is its
// position in the vector.
struct DeviceFacts {
  std::string name;
  double processor_share = 1;  // of a processor, what its computing thread got at the last profile
  bool is_lost = false;        // no plan may use it
};

// The pipeline at a barrier. Borrowed members live as long as the report.
struct BarrierReport {
  int64_t step = 0;
  const Plan& plan;                        // that holds
  Sequence first_sequence;                 // of the plan
  const std::vector<StageStatus>& stages;  // by stage
  std::vector<DeviceFacts> devices;        // by device number
  // By device number, as last measured or predicted; empty: no device was measured.
  const std::vector<DeviceTimes>& times;
};

}  // namespace runnel
