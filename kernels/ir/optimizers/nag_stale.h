// SGD with Nesterov's momentum against staleness. Weights stand where the momentum leads by the time
// of a gradient's own step (MomentumLead): a step moves them by the momentum,
// and by LEAD times its change. Scalars: learning rate, momentum, weight decay, LEAD.
#ifndef __OPENCL_C_VERSION__
#pragma once
namespace runnel::optimizers {
#endif

enum { kNagStaleSlots = 1 };  // velocity

static inline float NagStaleDirection(float weight, const float *slots, const float *s) {
  (void)weight;
  (void)s;
  return slots[0];
}

static inline float NagStaleStep(float weight, float gradient, float *slots, const float *s) {
  const float before = slots[0];
  const float decayed = gradient + s[2] * weight;
  slots[0] = s[1] * before + decayed;
  return weight - s[0] * (slots[0] + s[3] * (slots[0] - before));
}

#ifdef __OPENCL_C_VERSION__
UPDATE_WITH_1_SLOT(NagStale)
#else
}  // namespace runnel::optimizers
#endif
