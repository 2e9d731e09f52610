#pragma once

#include <cstdint>
#include <vector>

namespace runnel {

// Samples of a training that took each option of the gate of a layer.
struct GateChoices {
  int32_t layer = 0;             // in the model
  std::vector<int64_t> samples;  // by option

  friend bool operator==(const GateChoices&, const GateChoices&) = default;
};

}  // namespace runnel
