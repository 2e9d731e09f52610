#pragma once

// The report of `runnel-worker --check`, and the backends that a worker offers to central.

#include <string>
#include <vector>

#include "kernels/backends/backend.h"
#include "proto/base/log.h"
#include "worker/measure/backend_verdicts.h"

namespace runnel {

// A line for each backend of this build: its device, or why it cannot be used. Opens all of them
// and checks their arithmetic anew.
std::string CheckReport(const BackendSettings& settings, const BackendVerdicts& verdicts);

// The installed backends without those that compute wrong on this device, with a warning for each
// of these. Opens only backends found wrong before.
std::vector<std::string> OfferedBackends(const BackendSettings& settings,
                                         const BackendVerdicts& verdicts, Logger& logger);

}  // namespace runnel
