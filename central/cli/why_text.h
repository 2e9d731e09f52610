#pragma once

// What a run's time goes into and what would make it faster, for a terminal.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// From what central/display/state_json.h says. InvalidArgument: it is of another version.
absl::StatusOr<std::string> WhyText(absl::string_view state_json);

}  // namespace runnel
