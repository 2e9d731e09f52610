#pragma once

// A predictor row (predictor_row.h) fitted to one device.

#include "proto/base/plan/layer_range.h"

namespace runnel {

// Immutable; any thread.
class RangePredictor {
 public:
  virtual ~RangePredictor() = default;
  // The range must be one of the model. Above 0.
  virtual double Seconds(const LayerRange& range) const = 0;
};

}  // namespace runnel
