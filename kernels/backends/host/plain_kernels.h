#pragma once

// Kernels that several backends have: plain loops over tensors of the host.

#include "kernels/backends/host/call.h"

namespace runnel::host {

// Forward and gradient are the same map.
absl::Status Dropout(const Call& call);
absl::Status Copy(const Call& call);

}  // namespace runnel::host
