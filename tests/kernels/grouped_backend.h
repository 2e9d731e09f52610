#pragma once

// A backend of three processors, cpu and ref twice, that draws where each instruction runs and what
// shares a segment with what: orders that no schedule comes to, whose bytes must be the same.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<Backend>> MakeGroupedBackend(uint64_t seed);

}  // namespace runnel
