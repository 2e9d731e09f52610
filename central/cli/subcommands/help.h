#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"

namespace runnel {

// "--old is gone: ..." for a flag that the command had once; empty for any other.
std::string SuccessorOf(absl::string_view flag, const CLI::App& command);

}  // namespace runnel
