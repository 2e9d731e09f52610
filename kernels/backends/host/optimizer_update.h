#pragma once

// kOptimizerUpdate in plain loops.

#include "absl/status/status.h"
#include "kernels/backends/host/call.h"

namespace runnel::host {

absl::Status UpdateByOptimizer(const Call& call);

}  // namespace runnel::host
