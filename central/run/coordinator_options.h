#pragma once

// Makes the coordinator's options from a run's setup.

#include "central/run/machines/coordinator.h"
#include "central/run/trainer.h"

namespace runnel {

// Takes the job's state. has_local_workers: central starts the setup's local workers itself;
// without, all workers dial in.
CoordinatorOptions MakeCoordinatorOptions(TrainingJob& job, bool has_local_workers);

}  // namespace runnel
