// SGD with momentum; weight decay is part of the gradient. Scalars: learning rate, momentum, weight
// decay.
#ifndef __OPENCL_C_VERSION__
#pragma once
namespace runnel::optimizers {
#endif

enum { kSgdSlots = 1 };  // velocity

static inline float SgdStep(float weight, float gradient, float *slots, const float *s) {
  const float decayed = gradient + s[2] * weight;
  slots[0] = s[1] * slots[0] + decayed;
  return weight - s[0] * slots[0];
}

static inline float SgdDirection(float weight, const float *slots, const float *s) {
  (void)weight;
  (void)s;
  return slots[0];
}

#ifdef __OPENCL_C_VERSION__
UPDATE_WITH_1_SLOT(Sgd)
#else
}  // namespace runnel::optimizers
#endif
