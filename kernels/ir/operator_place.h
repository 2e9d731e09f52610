#pragma once

// Where operators with weights stand in a model, for recipes whose grids depend on it. Pure
// functions; any thread.

#include <cstdint>
#include <vector>

#include "proto/base/model/model_spec.h"

namespace runnel {

// The first of these that holds.
enum class Place : uint8_t {
  kFirst,      // no operator with weights comes before it
  kLast,       // none comes behind it
  kDepthwise,  // a convolution with a group for each input channel, of several
  kShortcut,   // alone on one of two ways through its layer to an addition, with more operators
               // with weights on the other way
  kInner,      // all others
};

// Convolutions and linear layers.
bool HasProducts(const OpSpec& op);

// `infos` is InferShapes(model, batch); the operator HasProducts.
Place PlaceOf(const ModelSpec& model, const std::vector<LayerInfo>& infos, int layer, int op);

}  // namespace runnel
