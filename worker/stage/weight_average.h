#pragma once

// --ema: the average of a stage's weights over the optimizer steps. It lies behind the optimizer's
// slots (kAverageSlot), and so in check-points, replicas and moves; evaluations and exports take it
// in place of the weights.
//
// Pure functions of FP32 arrays, single-threaded, the same bytes on every host: nothing is fused.

#include <cstdint>

namespace runnel {

// What the average keeps of itself at the run's `step`-th step: decay, at the beginning less, step /
// (step + 9), so that the first weights are soon forgotten (the rule of TensorFlow's num_updates). 0
// at step 0: the average is then the weights.
float AverageShare(double decay, int64_t step);

// average[i] = share * average[i] + (1 - share) * weights[i].
void MoveAverage(float share, const float* weights, int64_t elements, float* average);

}  // namespace runnel
