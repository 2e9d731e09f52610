#include "tests/kernels/inference/golden.h"

#include <fstream>

namespace runnel::inference {

nlohmann::json Golden(const std::string& name) {
  std::ifstream file(std::string(RUNNEL_SOURCE_DIR "/tests/golden/") + name);
  return nlohmann::json::parse(file);
}

}  // namespace runnel::inference
