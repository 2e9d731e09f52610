#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// The primitives of PULP-TrainLib for cores without much memory: products tile by tile in an L1 of
// small.l1_kb, recipes fp32, bf16 and fp16. One thread, whatever `settings` say. Never fails.
absl::StatusOr<std::unique_ptr<Backend>> MakeSmallBackend(const BackendSettings& settings);

}  // namespace runnel
