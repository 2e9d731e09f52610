#pragma once

// What the coordinator of a run is given, from what the run starts from.

#include "central/run/machines/coordinator.h"
#include "central/run/trainer.h"

namespace runnel {

// Takes the job's state. has_local_workers: central starts the setup's local workers itself;
// without, all workers dial in.
CoordinatorOptions MakeCoordinatorOptions(TrainingJob& job, bool has_local_workers);

}  // namespace runnel
