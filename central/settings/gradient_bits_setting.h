#pragma once

// What --gradient-bits asks for.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/training.h"

namespace runnel {

struct GradientBitsSetting {
  std::vector<GradientBitsStep> steps;  // known beforehand
  // One bit less after so many barriers in a row without a fall of the training loss; none: never.
  std::optional<int64_t> plateau_barriers;
};

// As ParseGradientBits, or "plateau:BITS" or "plateau:BITS:BARRIERS" (5 barriers): BITS or
// CONV/LINEAR at first. InvalidArgument says what does not fit.
absl::StatusOr<GradientBitsSetting> ParseGradientBitsSetting(absl::string_view text);

}  // namespace runnel
