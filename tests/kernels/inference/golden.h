#pragma once

// Files of tests/golden.

#include <string>

#include "nlohmann/json.hpp"

namespace runnel::inference {

nlohmann::json Golden(const std::string& name);

}  // namespace runnel::inference
