#pragma once

// A step of the average of a stage's weights (proto/base/training/weight_average.h).
//
// Pure function of FP32 arrays, single-threaded, the same bytes on every host: nothing is fused.

#include <cstdint>

namespace runnel {

// average[i] = share * average[i] + (1 - share) * weights[i].
void MoveAverage(float share, const float* weights, int64_t elements, float* average);

}  // namespace runnel
