#pragma once

// Single instructions of integer recipes on random operands, one maker an OpCode.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backends/backend.h"
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

// A sum of gradients. `difference`: the exponent of the total less that of the gradient.
struct GradientSumShape {
  DType gradient = DType::kInt32;  // or kInt64
  int64_t elements = 1;
  bool accumulates = true;
  int64_t difference = 0;
  bool small = false;
};
// Its operands have the extremes of what may be added, or are at most 100 (small).
IntegerCase MakeGradientSumCase(const GradientSumShape& shape, uint64_t seed);
// An update from 64-bit gradients of at most max_abs, some of which are +-max_abs.
IntegerCase MakeUpdateCase(Rounding rounding, int64_t max_abs, int64_t elements, uint64_t seed);
// A max pool of 2 x 2 with strides of 2, forward or backward, of x (n, c, h, w).
IntegerCase MakeQuarterPoolCase(OpCode code, const Shape& x, bool keeps_taps, uint64_t seed);

}  // namespace runnel
