#pragma once

// Pools and batch norm of a program by the primitives. FP32; halves take them widened
// (host/widened_call.h).

#include "absl/status/status.h"
#include "kernels/backends/host/call.h"

namespace runnel::small {

absl::Status MaxPoolForward(const host::Call& call);
absl::Status MaxPoolInputGradient(const host::Call& call);
absl::Status AvgPoolForward(const host::Call& call);
absl::Status AvgPoolInputGradient(const host::Call& call);
absl::Status GlobalAvgPoolForward(const host::Call& call);
absl::Status GlobalAvgPoolInputGradient(const host::Call& call);
absl::Status BatchNormForward(const host::Call& call);
absl::Status BatchNormEval(const host::Call& call);
absl::Status BatchNormAgain(const host::Call& call);
absl::Status BatchNormInputGradient(const host::Call& call);
absl::Status BatchNormWeightGradient(const host::Call& call);

}  // namespace runnel::small
