#pragma once

// Makes the check-point of a barrier.

#include <string>

#include "central/records/checkpoint.h"
#include "central/run/machines/coordinator.h"
#include "central/run/machines/run_effects.h"
#include "central/run/run_setup.h"

namespace runnel {

// control_address: where central listens. A run that goes on from there listens on the same port,
// for workers that dial it again and again, and waits for as many as take part now.
Checkpoint MakeCheckpoint(const RunSetup& setup, const std::string& control_address,
                          const Coordinator& run, StateCollected collected);

}  // namespace runnel
