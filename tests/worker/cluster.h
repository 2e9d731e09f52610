#pragma once

// A whole run in one process: the real trainer and real worker daemons on threads of their own,
// over transports that the test brings.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/run/run_setup.h"
#include "central/run/trainer.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/link/transport.h"

namespace runnel {

struct ClusterOptions {
  const LoadedRun* run = nullptr;
  std::optional<Plan> plan;  // none: of the run's policy
  int64_t first_step = 0;
  std::optional<ModelState> state;  // none: workers draw it from the seed
  // Transports of central and the workers; ports and addresses as they take them.
  Transport* transport = nullptr;
  ControlTransport* control = nullptr;
  std::string control_address = "127.0.0.1:0";
  std::string data_address = "127.0.0.1:0";
  // The workers' clocks run so many times too fast: a device that gets one over this of a
  // processor.
  int64_t worker_clock_rate = 1;
};

// Trains from first_step to the setup's stop_step.
absl::StatusOr<TrainingOutcome> RunCluster(const ClusterOptions& options);

}  // namespace runnel
