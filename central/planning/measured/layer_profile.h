#pragma once

// A device's profile by layer. A layer measured alone finds its tensors in the caches; as part of a
// stage it does not, and it does not pay for the ends of a stage. So parts of the model are
// measured too: all ranges of a short model, else some parts as long as stages. Layers are scaled
// so that each part sums to its measured time. Pure functions, any thread.

#include <cstdint>
#include <vector>

#include "proto/base/plan/layer_range.h"

namespace runnel {

// The parts to measure of a model of `layers` that `devices` may share; both >= 1. All ranges
// (proto/base/plan/layer_range.h) if they are few, else as many runs of layers, alike in number, as
// there are devices. None with a device for every layer.
std::vector<LayerRange> PartsOf(int layers, int devices);

// Micro-batches in flight of a stage of these layers by the papers, N - i, at most 8; i, the number
// of stages before it, follows from its first layer.
int64_t InFlightOf(const LayerRange& range, int layers, int devices);

// Seconds by layer from what layers and parts took, >= 0.
std::vector<double> LayersWithinParts(std::vector<double> layer_seconds,
                                      const std::vector<LayerRange>& parts,
                                      const std::vector<double>& part_seconds);

}  // namespace runnel
