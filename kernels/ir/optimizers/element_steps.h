#pragma once

// One element's step of every optimizer, and the loop over elements. Files that are compiled for one
// instruction set include it: nothing here has a name that another file could link against.

#include <cstdint>

#include "kernels/ir/optimizers/adamw.h"
#include "kernels/ir/optimizers/nadam_stale.h"
#include "kernels/ir/optimizers/nag_stale.h"
#include "kernels/ir/optimizers/optimizer_scalars.h"
#include "kernels/ir/optimizers/sgd.h"

namespace runnel::optimizers {

using ElementStep = float (*)(float weight, float gradient, float* slots, const float* scalars);
using ElementDirection = float (*)(float weight, const float* slots, const float* scalars);

// An OptimizerUpdate. `V` only names an instruction set.
template <typename V, int kSlots, ElementStep kStep>
void Update(const OptimizerScalars& scalars, const float* weights, const float* gradients,
            float* const* slots, int64_t count, float* updated) {
  const OptimizerScalars s = scalars;
  float* at[kSlots];
  for (int k = 0; k < kSlots; ++k) at[k] = slots[k];
    // ivdep: where an output is one of the inputs, it is the very same memory.
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float own[kSlots];
    for (int k = 0; k < kSlots; ++k) own[k] = at[k][i];
    updated[i] = kStep(weights[i], gradients[i] * s.gradient_factor, own, s.values);
    for (int k = 0; k < kSlots; ++k) at[k][i] = own[k];
  }
}

}  // namespace runnel::optimizers
