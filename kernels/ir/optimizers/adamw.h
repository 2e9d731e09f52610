// AdamW: Adam with weight decay apart from the gradient (Loshchilov and Hutter, arXiv 1711.05101,
// algorithm 2; moments and their bias correction: Kingma and Ba, arXiv 1412.6980). Scalars: rate,
// beta1, 1 - beta1, beta2, 1 - beta2, 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t), epsilon, weight
// decay, of the run's t-th step.
#ifndef __OPENCL_C_VERSION__
#pragma once
#include <cmath>
namespace runnel::optimizers {
using std::sqrt;
#endif

enum { kAdamWSlots = 2 };  // first and second moment

static inline float AdamWDirection(float weight, const float *slots, const float *s) {
  return slots[0] * s[5] / (sqrt(slots[1]) * s[6] + s[7]) + s[8] * weight;
}

static inline float AdamWStep(float weight, float gradient, float *slots, const float *s) {
  slots[0] = s[1] * slots[0] + s[2] * gradient;
  slots[1] = s[3] * slots[1] + s[4] * (gradient * gradient);
  return weight - s[0] * AdamWDirection(weight, slots, s);
}

#ifdef __OPENCL_C_VERSION__
UPDATE_WITH_2_SLOTS(AdamW)
#else
}  // namespace runnel::optimizers
#endif
