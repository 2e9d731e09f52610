#include "worker/stage/weight_average.h"

#include <algorithm>

namespace runnel {

float AverageShare(double decay, int64_t step) {
  const auto steps = static_cast<double>(step);
  return static_cast<float>(std::min(decay, steps / (steps + 9)));
}

void MoveAverage(float share, const float* weights, int64_t elements, float* average) {
  const float rest = 1 - share;
  for (int64_t i = 0; i < elements; ++i) average[i] = share * average[i] + rest * weights[i];
}

}  // namespace runnel
