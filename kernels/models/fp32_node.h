#pragma once

// A convolution or linear layer of a graph in FP32, by the kernels that training on backend `cpu`
// has: the peer of its time in integers.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/ir/program.h"
#include "kernels/models/graph/int8_graph.h"

namespace runnel::inference {

// Operands of its own, channels-last as inside a stage, with small values at first. One thread at a
// time calls it; `pool` is borrowed.
class Fp32Node {
 public:
  // node: of kConv, its shape inferred; batch: samples at a time, >= 1.
  Fp32Node(const Node& node, int64_t batch, cpu::ThreadPool* pool);
  Fp32Node(const Fp32Node&) = delete;
  Fp32Node& operator=(const Fp32Node&) = delete;

  absl::Span<float> x() { return absl::MakeSpan(x_); }              // NHWC
  absl::Span<float> weights() { return absl::MakeSpan(weights_); }  // OIHW
  absl::Span<float> bias() { return absl::MakeSpan(bias_); }        // out_c
  absl::Span<const float> y() const { return y_; }                  // NHWC

  // y = x convolved with the weights, + bias; what follows a convolution (a ReLU) is left out.
  void Run();

 private:
  std::vector<float> x_, weights_, bias_, y_;
  std::array<Buffer, 4> buffers_;
  std::array<cpu::Operand, 3> inputs_;
  std::array<cpu::Operand, 1> outputs_;
  Instruction instruction_;
  StepContext context_;
  cpu::Workspace workspace_;
  cpu::Call call_;
};

// Wall-clock seconds by node for a batch: medians over `passes` after one that does not count. 0
// for nodes that are no convolution or linear layer.
std::vector<double> TimeFp32Nodes(const Int8Graph& graph, int64_t batch, int threads, int passes);

}  // namespace runnel::inference
