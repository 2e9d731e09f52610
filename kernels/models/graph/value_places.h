#pragma once

// Where the values of a pass lie. One that has been read for the last time leaves its memory to a
// later one: what a node writes is in the caches then.

#include <cstdint>
#include <vector>

#include "kernels/models/graph/int8_graph.h"

namespace runnel::inference {

struct ValuePlaces {
  // By node: the node whose memory has its value, itself if it is the first there; -1: the value is
  // nowhere.
  std::vector<int32_t> of;
  // By node: what its memory has to hold, in elements of one sample; 0 where it has none.
  std::vector<int64_t> elements;
};

// computed_in: by node, of an addition the convolution that computes it with its own value, or -1;
// such an addition may lie where the other value does. The last node has memory of its own.
ValuePlaces ShareMemory(const Int8Graph& graph, const std::vector<int32_t>& computed_in);
// Each node has its own.
ValuePlaces OwnMemory(const Int8Graph& graph);

}  // namespace runnel::inference
