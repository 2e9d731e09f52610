#pragma once

// A convolution that stays in FP32: the first or the last layer of a quantised model, if asked for.
// Sums are taken in one order (taps, then inputs) without fused multiply-add, so both executors and
// all instruction sets give the same bytes.

#include <cstdint>
#include <vector>

#include "kernels/models/graph/int8_graph.h"
#include "kernels/models/loops/code_loops.h"

namespace runnel::inference {

class RealConv {
 public:
  // graph: borrowed, checked; node `at` is_real().
  RealConv(const Int8Graph& graph, size_t at, const CodeLoops& loops);

  // One sample. sample: the graph's, NCHW, where it reads it; x: codes of the input. Gives codes,
  // or logits where the node does.
  void Run(const float* sample, const int8_t* x, int8_t* codes, float* logits);

 private:
  void SumAt(int64_t oh, int64_t ow);

  const Int8Graph& graph_;
  const size_t at_;
  const CodeLoops& loops_;
  std::vector<float> packed_;  // (group, tap, in, out of the group)
  std::vector<float> input_;   // NHWC
  std::vector<float> sums_;    // of one position
};

}  // namespace runnel::inference
