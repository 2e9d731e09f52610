#pragma once

// What a run keeps at a barrier.

#include <vector>

#include "central/records/checkpoint.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "central/run/run_setup.h"

namespace runnel {

// `changes`: all that were decided, of which those up to that barrier are kept.
Checkpoint MakeCheckpoint(const RunSetup& setup, std::vector<TrainingChange> changes,
                          const Plan& plan, const std::vector<Device>& devices,
                          StateCollected collected);

}  // namespace runnel
