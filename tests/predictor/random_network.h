#pragma once

// Networks of random weights.

#include <random>

#include "predictor/networks/mlp.h"

namespace runnel {

inline LinearLayer RandomLayer(int inputs, int outputs, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.5f);
  LinearLayer layer{inputs, outputs, {}, {}};
  for (int i = 0; i < inputs * outputs; ++i) layer.weights.push_back(normal(random));
  for (int i = 0; i < outputs; ++i) layer.bias.push_back(normal(random));
  return layer;
}

}  // namespace runnel
