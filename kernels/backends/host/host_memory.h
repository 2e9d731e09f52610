#pragma once

// Memory of backends that compute on the host: mapping it is free.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// Zeroed and aligned for huge pages (AreaAlignment). ResourceExhausted: there is no more.
absl::StatusOr<std::unique_ptr<Memory>> AllocateHostMemory(int64_t bytes);

}  // namespace runnel
