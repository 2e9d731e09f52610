#pragma once

// The dial of integer recipes: how many bits of a gradient a step keeps. A value is BITS or
// CONV/LINEAR, as --gradient-bits takes them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

inline constexpr absl::string_view kGradientBitsDial = "gradient_bits";

// InvalidArgument says what does not fit.
absl::StatusOr<GradientBits> GradientBitsOfValue(absl::string_view value);
absl::Status CheckGradientBitsValue(absl::string_view value);

// The change that sets these bits from `step` on.
TrainingChange ChangeOfGradientBits(int64_t step, const GradientBits& bits);

// The bits of a step of an epoch: those of the last change that holds, else the settings'.
GradientBits GradientBitsAt(const TrainingSettings& settings,
                            const std::vector<TrainingChange>& changes, int64_t epoch,
                            int64_t step);

}  // namespace runnel
