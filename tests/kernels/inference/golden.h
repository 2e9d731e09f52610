#pragma once

// Files of tests/golden.

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace runnel::inference {

inline nlohmann::json Golden(const std::string& name) {
  std::ifstream file(std::string(RUNNEL_SOURCE_DIR "/tests/golden/") + name);
  return nlohmann::json::parse(file);
}

}  // namespace runnel::inference
