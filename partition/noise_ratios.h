#pragma once

// What codecs were measured to add to the noise of gradients, as a share of what their table says.
// Where a tensor crosses a link decides it as well as the codec does: an error near the input goes
// through all layers, one near the loss through few.

#include <map>

#include "proto/base/ids.h"

namespace runnel {

struct NoiseRatios {
  double all = 1;  // of directions without a place below
  // By the layer behind which the tensor crosses.
  std::map<int, double> forward = {};
  std::map<int, double> backward = {};

  // At a place that was not measured the line between its neighbours, or the nearest: a cut must not
  // look better for being another one.
  double At(int layer, Direction direction) const;
  friend bool operator==(const NoiseRatios&, const NoiseRatios&) = default;
};

}  // namespace runnel
