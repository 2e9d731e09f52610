#pragma once

// oneDNN's INT8 inference of a whole network: what a user of it would build of the same layers.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/models/graph/int8_graph.h"

namespace runnel::bench {

class OneDnnGraph {
 public:
  virtual ~OneDnnGraph() = default;
  // The whole network, from FP32 samples (NCHW) to FP32 logits.
  virtual void Run() = 0;
};

// The graph's nodes as oneDNN takes them best: activations u8 in NHWC, weights s8 in the
// primitive's favourite layout and reordered once, u8s8s32 convolutions whose post-ops rescale by
// output channel, add the other branch and clamp. Values are noise: the same work, other numbers.
// Unimplemented: a graph with an addition that no convolution can take.
absl::StatusOr<std::unique_ptr<OneDnnGraph>> MakeOneDnnGraph(const inference::Int8Graph& graph,
                                                             int64_t batch);

}  // namespace runnel::bench
