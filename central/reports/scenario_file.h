#pragma once

// Scenario files (partition/scenario.h says what stands in them).

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "partition/scenario.h"

namespace runnel {

// InvalidArgument says where the JSON breaks, or names the key that is missing, unknown, of the
// wrong type or (CheckScenario) of a value that cannot be.
absl::StatusOr<Scenario> ScenarioFromJson(absl::string_view text);

// Of those that are compiled in, which are the lab's (deploy/lab/scenarios), in alphabetical order.
std::vector<std::string> ScenarioNames();

// A builtin scenario by its name, "accept-1"; else ReadScenario of a path. NotFound lists the
// names.
absl::StatusOr<Scenario> FindScenario(const std::string& name_or_path);

// As ScenarioFromJson, with the file's name in front; and what ReadWholeFile says (NotFound if
// there is no such file, InvalidArgument for one of more than 16 MiB).
absl::StatusOr<Scenario> ReadScenario(const std::string& path);

}  // namespace runnel
