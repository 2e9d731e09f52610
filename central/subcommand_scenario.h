#pragma once

// Scenario files (partition/scenario.h says what stands in them).

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "partition/scenario.h"

namespace runnel {

// InvalidArgument says where the JSON breaks, or names the key that is missing, unknown, of the
// wrong type or (CheckScenario) of a value that cannot be.
absl::StatusOr<Scenario> ScenarioFromJson(absl::string_view text);

// NotFound if there is no such file; otherwise as above, with the file's name in front. A file of
// more than 16 MiB is refused.
absl::StatusOr<Scenario> ReadScenario(const std::string& path);

}  // namespace runnel
