#include "worker/stage/state/weight_average.h"

namespace runnel {

void MoveAverage(float share, const float* weights, int64_t elements, float* average) {
  const float rest = 1 - share;
  for (int64_t i = 0; i < elements; ++i) average[i] = share * average[i] + rest * weights[i];
}

}  // namespace runnel
