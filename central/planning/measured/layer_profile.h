#pragma once

// The profile of a device by layer. A layer that is measured by itself finds its tensors in the
// caches where it left them; as part of a stage it does not, and what it does at the stage's ends
// falls away. So parts of the model are measured too: where it has few layers all that a stage may
// be, else some as long as stages, and their layers are scaled to take together what they took.
// Pure functions, any thread.

#include <cstdint>
#include <vector>

#include "proto/base/plan/layer_range.h"

namespace runnel {

// What is measured of a model of `layers` that `devices` may share; both >= 1. All ranges
// (proto/base/plan/layer_range.h) if they are few, else as many runs of layers, alike in
// number, as there are devices. None with a device for every layer: there is nothing more to
// measure.
std::vector<LayerRange> PartsOf(int layers, int devices);

// How many micro-batches a stage of these layers has in flight by the papers, N - i, but at most 8;
// i, how many come before it, is what its first layer makes likely.
int64_t InFlightOf(const LayerRange& range, int layers, int devices);

// Seconds by layer from what layers and parts took, >= 0.
std::vector<double> LayersWithinParts(std::vector<double> layer_seconds,
                                      const std::vector<LayerRange>& parts,
                                      const std::vector<double>& part_seconds);

}  // namespace runnel
