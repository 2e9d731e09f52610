#pragma once

// Random INT8 graphs: every kind of node, both schemes, scales a layer or a channel, groups and
// depthwise convolutions, weight zeros, unequal windows, slices, layers in FP32, codes and factors
// at their ends.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/models/graph/int8_graph.h"

namespace runnel::inference {

// Checked. Small enough for an emulator; a pure function of the seed.
Int8Graph RandomGraph(uint64_t seed);

// A batch that the graph takes, in bytes: samples with NaN, infinities, the smallest floats and
// halves of the scale among them, or codes with both ends.
std::vector<std::byte> RandomInput(const Int8Graph& graph, uint64_t seed, int64_t batch);

}  // namespace runnel::inference
