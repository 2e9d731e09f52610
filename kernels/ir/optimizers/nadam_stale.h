// AdamW with Nesterov's momentum (Dozat, "Incorporating Nesterov momentum into Adam", 2016) against
// staleness: weights stand where the first moment leads by the time of a gradient's own step
// (MomentumLead). Scalars as AdamW's, but for 1 / (1 - beta1^(t + delay + 1))
// in place of 1 / (1 - beta1^t), since that is the sum of the weights which gradients have in a
// step; then LEAD.
#ifndef __OPENCL_C_VERSION__
#pragma once
#include <cmath>
namespace runnel::optimizers {
using std::sqrt;
#endif

enum { kNadamStaleSlots = 2 };  // first and second moment

static inline float NadamStaleDirection(float weight, const float *slots, const float *s) {
  return slots[0] * s[5] / (sqrt(slots[1]) * s[6] + s[7]) + s[8] * weight;
}

static inline float NadamStaleStep(float weight, float gradient, float *slots, const float *s) {
  const float before = slots[0];
  slots[0] = s[1] * before + s[2] * gradient;
  slots[1] = s[3] * slots[1] + s[4] * (gradient * gradient);
  const float ahead = slots[0] + s[9] * (slots[0] - before);
  return weight - s[0] * (ahead * s[5] / (sqrt(slots[1]) * s[6] + s[7]) + s[8] * weight);
}

#ifdef __OPENCL_C_VERSION__
UPDATE_WITH_2_SLOTS(NadamStale)
#else
}  // namespace runnel::optimizers
#endif
