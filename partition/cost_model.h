#pragma once

// Costs by which policies plan: pure functions of layer ranges and devices, in seconds.

#include <cstdint>
#include <functional>

#include "proto/base/ids.h"

namespace runnel {

// Time of computation. Implementations: the measured per-layer profile (MeasuredCost), tables in
// tests, predictors.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Seconds that `device` (position in PlanRequest::devices) needs for forward, backward and update
  // of one micro-batch through layers first..last, both included. >= 0.
  virtual double StageSeconds(int device, int first_layer, int last_layer) const = 0;
};

// Seconds that the boundary after `layer` takes on the link between devices `from` and from + 1,
// one way. >= 0.
using LinkSecondsFn = std::function<double(int layer, int from, Direction direction)>;

}  // namespace runnel
