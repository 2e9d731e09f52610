#pragma once

// The profile of a device by layer. A layer that is measured by itself finds its tensors in the
// caches where it left them; as part of a stage it does not, and what it does at the stage's ends
// falls away. So parts of the model as long as stages are measured too, and its layers are scaled
// to take together what the part took. Pure functions, any thread.

#include <cstdint>
#include <vector>

#include "proto/base/layer_range.h"

namespace runnel {

// As many runs of layers, alike in number, that make up the model of `layers` that `parts` devices
// may share; both >= 1. None with a part for every layer: there is nothing more to measure.
std::vector<LayerRange> PartsOf(int layers, int parts);

// By part: how many micro-batches the stage that it is like has in flight by the papers, N - i, but
// at most 8.
std::vector<int64_t> InFlightOfParts(int layers, int parts);

// Seconds by layer from what layers and parts took, >= 0.
std::vector<double> LayersWithinParts(std::vector<double> layer_seconds,
                                      const std::vector<LayerRange>& parts,
                                      const std::vector<double>& part_seconds);

}  // namespace runnel
