#pragma once

// What a run keeps at a barrier, as a check-point file and the journal's record of it.

#include <vector>

#include "absl/status/status.h"
#include "central/records/journal.h"
#include "central/run/machines/roster.h"
#include "central/run/machines/run_effects.h"
#include "central/run/run_setup.h"

namespace runnel {

// Writes `collected` into the setup's check-point folder; nothing to do without one. `changes`: all
// that were decided, of which those up to that barrier are kept. `journal` may be null. Errors name
// the file.
absl::Status SaveCheckpoint(const RunSetup& setup, std::vector<TrainingChange> changes,
                            const Plan& plan, const std::vector<Device>& devices,
                            const StateCollected& collected, JournalWriter* journal);

}  // namespace runnel
