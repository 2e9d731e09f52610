#pragma once

// Single instructions of integer recipes on random operands, one maker an OpCode.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/op_harness.h"

namespace runnel {

struct IntegerCase {
  OpCode code = OpCode::kQuantize;
  OpSpec attributes;
  IntegerRule rule;
  RescaleRule rescale;
  BatchSplit split;
  StepContext context;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;  // with first contents

  std::string ToString() const;
};

// A pure function of code and seed. Nothing for a code without a maker.
std::optional<IntegerCase> MakeIntegerCase(OpCode code, uint64_t seed);
// Likewise, of the instructions of INT8 inference.
std::optional<IntegerCase> MakeCodeCase(OpCode code, uint64_t seed);

}  // namespace runnel
