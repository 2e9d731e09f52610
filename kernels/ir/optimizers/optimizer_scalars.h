#pragma once

// Scalars of an optimizer's step for loops over elements.

#include <cstdint>

namespace runnel {

// Each optimizer's own: the rate, decay, corrections of a step.
struct OptimizerScalars {
  float values[12] = {};
  float gradient_factor = 1;  // of all: StepContext's, over its loss_scale
};

// slots[k]: the optimizer's k-th, in place. `updated` may be `weights`.
using OptimizerUpdate = void (*)(const OptimizerScalars& scalars, const float* weights,
                                 const float* gradients, float* const* slots, int64_t count,
                                 float* updated);

}  // namespace runnel
