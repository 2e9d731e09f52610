#pragma once

// What frozen layers save of a range's time, and a second forward costs. Predictors know layers that
// train; a convolution or
// linear layer multiplies as often in its forward, its input-gradient and its weight-gradient.

#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

class FrozenShare {
 public:
  FrozenShare() = default;  // of a model that trains as a whole, with one forward
  // InvalidArgument as InferShapes.
  static absl::StatusOr<FrozenShare> Create(const ModelSpec& model);

  // The range's time over what it would be if all its layers trained, by multiply-accumulates:
  // 1/3 to 4/3.
  double Of(const LayerRange& range) const;

 private:
  std::vector<double> macs_;   // by layer; empty: nothing is frozen
  std::vector<double> share_;  // of them, by layer
};

}  // namespace runnel
