#pragma once

// The state of devices and pipeline when a plan is made or looked at again.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "central/records/stage_status.h"
#include "proto/base/ids.h"
#include "proto/base/plan/device_costs.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/plan/link_rate.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/training_change.h"

namespace runnel {

// Measured figures of one direction between two devices.
struct WayFigures {
  LinkRate rate = {};                        // not set: not measured
  std::optional<double> delay_seconds = {};  // none: not measured
  int medium = -1;                           // LinkSpeed::medium

  friend bool operator==(const WayFigures&, const WayFigures&) = default;
};

// The path between central's host and a worker's, as it was measured before the first plan. A way
// without figures: the worker is on central's host, or nothing was measured.
struct PathFigures {
  WayFigures down;  // towards the worker
  WayFigures up;
  // Paths with the same number share their bandwidth; -1: nothing is shared.
  int medium = -1;
  // Whether both directions share the medium, as on a radio.
  bool half_duplex = false;
};

// A worker that takes part, as far as plans depend on it. Its number in plans (DeviceId) is its
// position in the vector, which grows when others join.
struct DeviceFacts {
  std::string name;
  double processor_share = 1;  // processor share of its computing thread at the last profile
  bool is_lost = false;        // no plan may use it: it is not there, or leaves
  bool is_local = false;       // on central's host
  PathFigures path = {};       // path to a worker on another host
  DeviceCosts costs = {};
  int64_t memory_bytes = 0;  // memory that its worker may take; 0: not known
  // The memory that the limit is about, if not the worker's --memory-mb: a GPU's or DSP's, which
  // holds all of its stage; empty: the worker's memory.
  std::string memory_of = {};
  // Its data port answered when it joined. Between two devices whose ports did not, links go by way
  // of central.
  bool is_dialable = true;
};

// How a run gets on, by central's clock. 0: not known yet.
struct RunPace {
  double trained_seconds = 0;  // since this process began to train, between barriers
  double step_seconds = 0;  // of an optimizer step, a moving mean over stretches between barriers
  double barrier_seconds =
      0;                      // in which stages wait, as the pipeline drains and fills again; alike
  int64_t losses = 0;         // of workers, since this process began, for which the run went back
  int64_t barrier_every = 0;  // steps between barriers that led to this one
};

// The pipeline at a barrier. Borrowed members live as long as the report.
struct BarrierReport {
  int64_t step = 0;
  const Plan& plan;                        // the current plan
  Sequence first_sequence;                 // first sequence of the plan
  const std::vector<StageStatus>& stages;  // by stage
  std::vector<DeviceFacts> devices;        // by device number
  // Times by device number, as last measured or predicted; empty: no device was measured. Devices
  // that joined since may have none.
  const std::vector<DeviceTimes>& times;
  bool is_regular = true;  // the step is a multiple of the interval of barriers
  RunPace pace = {};
  const std::vector<TrainingChange>* changes = nullptr;  // decided before; null: none
  int64_t run_steps = 0;                                 // of all epochs; 0: not known
};

}  // namespace runnel
