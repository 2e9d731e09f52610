#pragma once

// What each node of an INT8 graph costs and how far it is from FP32: the rows of a layer report.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/models/graph/folded_graph.h"
#include "kernels/models/graph_runner.h"

namespace runnel::inference {

// What follows from the graph alone, for one sample.
struct NodeFacts {
  std::string name;    // "conv 3x3", "linear", "add"
  std::string shape;   // as the paper's figures: in channels - in height - out channels
  std::string kernel;  // what computes it
  int64_t macs = 0;    // of convolutions
  int64_t bytes = 0;   // codes in and out, weights with what comes with them
};
std::vector<NodeFacts> DescribeNodes(const Int8Graph& graph,
                                     absl::FunctionRef<std::string(size_t node)> kernel);

// Of a node's values as real numbers against those of the FP32 graph.
struct NodeError {
  double snr_db = 0;  // 10 log10(sum x^2 / sum (x - y)^2); infinite where they are equal
  double cosine = 1;
};
// By node, over `count` samples (NCHW). The graphs have the same nodes. Errors: the runner's.
absl::StatusOr<std::vector<NodeError>> CompareNodes(const FoldedGraph& real, const Int8Graph& graph,
                                                    GraphRunner& runner,
                                                    absl::Span<const float> samples, int64_t count);

}  // namespace runnel::inference
