#pragma once

// The page behind `/`: central/display/page in one text, which asks for nothing but /state.

#include <string>

#include "absl/strings/string_view.h"

namespace runnel {

// Asks for /state every second and draws it.
absl::string_view AdminPage();
// The same page of a run that is over, with its state (state_json.h) inside: a file of its own.
std::string ReportPage(absl::string_view state_json);

}  // namespace runnel
