#pragma once

// A run as it stands, for a terminal: from what central/display/state_json.h says. InvalidArgument:
// it is of another version.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// How far it is, who has which layers, links, last events.
absl::StatusOr<std::string> StatusText(absl::string_view state_json);
// What its time goes into, and what would make it faster.
absl::StatusOr<std::string> WhyText(absl::string_view state_json);

}  // namespace runnel
