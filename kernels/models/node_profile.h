#pragma once

// What each node of an INT8 graph costs and how far it is from FP32: the rows of a layer report.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/models/graph/folded_graph.h"
#include "kernels/models/int8_executor.h"

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
// By node, over `count` samples (NCHW). The graphs have the same nodes.
std::vector<NodeError> CompareNodes(const FoldedGraph& real, const Int8Graph& graph,
                                    const cpu::Int8Kernels& kernels,
                                    absl::Span<const float> samples, int64_t count);

// Wall-clock seconds by node, medians over `passes` of a batch, after one that does not count.
std::vector<double> TimeNodes(const Int8Graph& graph, Int8Executor& executor,
                              absl::Span<const float> samples, int64_t batch, int passes);

// Operations a second (a multiply-accumulate is two) of one thread's inner loop over operands in
// the nearest cache: what no product of these kernels can exceed. The best of a few short runs.
double MeasurePeak(const cpu::Int8Kernels& kernels);

}  // namespace runnel::inference
