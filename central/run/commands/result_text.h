#pragma once

// What a run came to, for people.

#include <cstdint>
#include <string>

#include "central/run/trainer.h"
#include "central/settings/run_settings.h"

namespace runnel {

// Lines without the last one's end; last_step: the step at which the run was to end.
std::string ResultText(const TrainingOutcome& outcome, const RunSettings& settings,
                       int64_t last_step);

}  // namespace runnel
