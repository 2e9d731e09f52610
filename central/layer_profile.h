#pragma once

// The profile of a device by layer. A layer that is measured by itself finds its tensors in the
// caches where it left them; as part of a stage it does not, and what it does at the stage's ends
// falls away. So parts of the model as long as stages are measured too, and its layers are scaled
// to take together what the part took. Pure functions, any thread.

#include <cstdint>
#include <vector>

#include "proto/base/layer_range.h"

namespace runnel {

// What to measure for a model of `layers` that `parts` devices may share: each layer, then as many
// runs of layers, alike in number, that make up the model. Both >= 1; with a part for every layer
// there is nothing more to measure.
std::vector<LayerRange> LayersAndParts(int layers, int parts);

// With each of them: one micro-batch in flight where it is a layer, as many as the stage that it is
// like has by the papers (N - i, at most 8) where it is a part.
std::vector<int64_t> InFlightOfParts(int layers, int parts);

// Seconds by layer from what LayersAndParts' ranges took, >= 0.
std::vector<double> LayersWithinParts(const std::vector<LayerRange>& ranges,
                                      const std::vector<double>& seconds);

}  // namespace runnel
