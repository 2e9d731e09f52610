#pragma once

// What `runnel-worker --check` says of this device, and which backends a worker keeps to itself.

#include <string>
#include <vector>

#include "kernels/backends/backend.h"
#include "proto/base/log.h"
#include "worker/measure/backend_verdicts.h"

namespace runnel {

// A line each backend that this build knows: what it computes on, or why it cannot be used. Opens
// all of them and checks their arithmetic anew.
std::string CheckReport(const BackendSettings& settings, const BackendVerdicts& verdicts);

// What is installed, without those that compute wrong on this device, with a warning for each.
// Opens none that was not found wrong before.
std::vector<std::string> OfferedBackends(const BackendSettings& settings,
                                         const BackendVerdicts& verdicts, Logger& logger);

}  // namespace runnel
