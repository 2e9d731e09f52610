#pragma once

// Puts a max pooling before the ReLU that feeds it. Both orders give the same values and the same
// gradients, byte for byte: the largest of what ReLU leaves is what ReLU leaves of the largest, and
// where nothing positive is in a window neither order passes a gradient. But ReLU and its mask then
// run on the pooled tensor, and the unpooled one need not be stashed. Used by the compiler; a pure
// function, any thread.

#include "proto/base/model/model_spec.h"

namespace runnel {

// Only within a layer, only where the pooling alone reads the ReLU, and not behind a batch norm,
// whose own ReLU backends fuse with it. Op numbers keep their state: the two operators trade
// places.
ModelSpec CommutePools(const ModelSpec& model);

}  // namespace runnel
