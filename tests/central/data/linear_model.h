#pragma once

// The yardstick for generated data sets: a softmax regression on the raw samples, trained by plain
// gradient descent. What it reaches is what a data set gives away to a model without any layer.

#include <vector>

#include "central/data/dataset.h"

namespace runnel {

struct LinearAccuracy {
  double train = 0;
  double test = 0;
};

// Mini-batches of 64 in data set order, learning rate `rate`, falling linearly to 0.
LinearAccuracy TrainLinearModel(const DatasetSplits& splits, int epochs, float rate);

}  // namespace runnel
