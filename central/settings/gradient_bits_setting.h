#pragma once

// What --gradient-bits asks for.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/training.h"

namespace runnel {

struct GradientBitsSetting {
  std::vector<GradientBitsStep> steps;  // known beforehand
  // The rule that changes them while training (central/planning/rules); empty: none.
  std::string rule;
  std::string rule_arguments;
};

// As ParseGradientBits, or RULE:BITS or RULE:BITS:ARGUMENTS: BITS or CONV/LINEAR at first.
// InvalidArgument says what does not fit; whether there is such a rule is not looked at.
absl::StatusOr<GradientBitsSetting> ParseGradientBitsSetting(absl::string_view text);

}  // namespace runnel
